// Live updates, theme, keyboard, charts and confirmations. Every page works without this file.
"use strict";
(() => {
  const root = document.documentElement;
  const base = root.dataset.base || "";
  const store = {
    get: (name) => { try { return localStorage.getItem(name); } catch { return null; } },
    set: (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } },
  };

  // ---------------------------------------------------------------- theme
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-toggle]")) return;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    store.set("tickwork-theme", root.dataset.theme);
    drawCharts();
  });

  // ---------------------------------------------------------------- times
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  function relative(seconds) {
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const [unit, length] = units.find(([, each]) => size >= each) || units[3];
    const text = `${Math.floor(size / length)}${unit}`;
    return seconds > 0 ? `in ${text}` : `${text} ago`;
  }
  function refreshTimes() {
    for (const each of document.querySelectorAll("time[data-relative]")) {
      each.textContent = relative((Date.parse(each.dateTime) - Date.now()) / 1000);
    }
  }
  setInterval(refreshTimes, 1000);

  // ---------------------------------------------------------------- live
  const button = document.querySelector("[data-live-toggle]");
  let source = null;
  let isPaused = store.get("tickwork-live") === "paused";
  let isBusy = false;
  function show(state, text) {
    if (!button) return;
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(state === "live"));
    button.querySelector("[data-live-text]").textContent = text;
  }
  function isEditing() {
    const region = document.getElementById("live");
    const at = document.activeElement;
    const isTyping = region && at && region.contains(at) && /INPUT|SELECT|TEXTAREA/.test(at.tagName);
    const isChosen = region && region.querySelector("input[name=id]:checked");
    return isTyping || isChosen || document.querySelector("dialog[open], details[data-keep][open]");
  }
  function refresh() {
    if (isBusy || isEditing() || !document.getElementById("live")) return;
    isBusy = true;
    htmx.ajax("GET", location.pathname + location.search, {
      target: "#live", select: "#live", swap: "outerHTML",
    }).finally(() => { isBusy = false; });
  }
  function connect() {
    if (source || isPaused || document.hidden || !document.getElementById("live")) return;
    source = new EventSource(`${base}/events`);
    source.addEventListener("open", () => show("live", "Live"));
    source.addEventListener("change", refresh);
    source.addEventListener("error", () => {
      show("lost", "Reconnecting");
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        // Refused: there are too many live pages. Not all of them try again together.
        setTimeout(connect, 30000 + Math.random() * 30000);
      }
    });
  }
  function disconnect(text) {
    if (source) source.close();
    source = null;
    show("paused", text);
  }
  if (button) {
    button.hidden = !document.getElementById("live");
    button.addEventListener("click", () => {
      isPaused = !isPaused;
      store.set("tickwork-live", isPaused ? "paused" : "live");
      if (isPaused) { disconnect("Paused"); } else { connect(); refresh(); }
    });
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { disconnect("Paused"); } else if (!isPaused) { connect(); refresh(); }
    });
    if (isPaused) { show("paused", "Paused"); } else { connect(); }
    // The server sends no event when a run only reports progress or logs.
    setInterval(() => { if (source && document.querySelector("#live[data-changing]")) refresh(); }, 5000);
  }

  // ---------------------------------------------------------------- charts
  function drawCharts() {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    for (const place of document.querySelectorAll("[data-chart]")) {
      const data = JSON.parse(place.dataset.chart);
      place.replaceChildren();
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 },
        ticks: { show: false }, font: "11px system-ui" };
      const line = (label, name) => ({ label, stroke: colour(name), width: 2,
        fill: `${colour(name)}22`, points: { show: false } });
      new uPlot({
        width: place.clientWidth, height: place.clientHeight, legend: { show: false },
        cursor: { y: false }, padding: [8, 8, 0, 0],
        scales: { y: { range: (u, low, high) => [0, Math.max(high * 1.1, 4)] } },
        axes: [axis, { ...axis, size: 36 }],
        series: [{}, line("created", "--busy"), line("completed", "--good"), line("failed", "--bad")],
      }, data, place);
    }
  }
  let resize = 0;
  addEventListener("resize", () => { clearTimeout(resize); resize = setTimeout(drawCharts, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
  document.addEventListener("htmx:afterSettle", () => { drawCharts(); refreshTimes(); });

  // ---------------------------------------------------------------- confirmations
  const dialog = document.getElementById("confirm");
  let waiting = null;
  document.addEventListener("submit", (event) => {
    const form = event.target;
    const question = event.submitter && event.submitter.dataset.confirm
      ? event.submitter.dataset.confirm : form.dataset.confirm;
    if (!question || form.dataset.confirmed || !dialog) return;
    event.preventDefault();
    const chosen = document.querySelectorAll("input[name=id]:checked").length;
    dialog.querySelector("[data-question]").textContent = question.replace("{n}", `${chosen} run${chosen === 1 ? "" : "s"}`);
    waiting = { form, submitter: event.submitter };
    dialog.showModal();
  }, true);
  if (dialog) {
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "yes" || !waiting) { waiting = null; return; }
      const { form, submitter } = waiting;
      waiting = null;
      form.dataset.confirmed = "yes";
      form.requestSubmit(submitter);
    });
  }

  // ---------------------------------------------------------------- selection
  function countChosen() {
    const chosen = document.querySelectorAll("input[name=id]:checked").length;
    for (const bar of document.querySelectorAll("[data-selection]")) {
      bar.hidden = chosen === 0;
      bar.querySelector("[data-chosen]").textContent = String(chosen);
    }
  }
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-choose-all]")) {
      for (const each of document.querySelectorAll("input[name=id]")) {
        each.checked = event.target.checked;
      }
    }
    if (event.target.matches("[data-choose-all], input[name=id]")) countChosen();
  });

  // ---------------------------------------------------------------- copy and keyboard
  document.addEventListener("click", (event) => {
    const place = event.target.closest("[data-copy]");
    if (!place) return;
    navigator.clipboard.writeText(place.dataset.copy).then(() => {
      const before = place.textContent;
      place.textContent = "Copied";
      setTimeout(() => { place.textContent = before; }, 1200);
    });
  });
  let last = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      const field = document.querySelector("input[type=search]");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (event.key === "?") {
      const help = document.getElementById("keys");
      if (help) help.showModal();
    } else if (last === "g") {
      const link = document.querySelector(`.nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) location.assign(link.href);
    }
    last = event.key;
  });

  // On a phone the list of pages scrolls: show where this one is.
  const current = document.querySelector(".nav a[aria-current]");
  if (current) current.scrollIntoView({ block: "nearest", inline: "center" });
  drawCharts();
  refreshTimes();
})();
