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
  // The same rules as relative_time in _kernel/durations.py.
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  function duration(seconds) {
    if (seconds < 0.9995) return `${Number((seconds * 1000).toPrecision(3))}ms`;
    if (seconds < 3) return `${Number(seconds.toPrecision(3))}s`;
    const round = (value, step) => Math.round(value / step) * step;
    let rest = round(seconds, seconds < 600 ? 1 : 60);
    if (rest >= 86400) rest = round(rest, 3600);
    const parts = [];
    for (const [unit, length] of units) {
      const count = Math.floor(rest / length);
      rest -= count * length;
      if (count) parts.push(`${count}${unit}`);
    }
    return parts.slice(0, 2).join(" ");
  }
  function relative(seconds) {
    if (Math.abs(seconds) < 0.5) return "now";
    const text = duration(Math.abs(seconds));
    return seconds > 0 ? `in ${text}` : `${text} ago`;
  }
  function refreshTimes() {
    for (const each of document.querySelectorAll("time[data-relative]")) {
      each.textContent = relative((Date.parse(each.dateTime) - Date.now()) / 1000);
    }
  }
  setInterval(refreshTimes, 1000);

  // ---------------------------------------------------------------- live
  // A new page is merged into the one that is shown: what stays the same stays the same element,
  // so focus, selections, opened details, typed text and scroll positions are kept.
  // `form.id` would be the inputs with the name id.
  const keyOf = (node) => (node.nodeType === 1
    ? node.getAttribute("id") || node.getAttribute("data-key") || node.querySelector(":scope > td > input[name=id]")?.value || ""
    : "");
  function isAlike(one, other) {
    return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
  }
  function mergeAttributes(old, now) {
    for (const { name } of [...old.attributes]) {
      const isOpen = name === "open" && old.matches("details, dialog");
      if (!now.hasAttribute(name) && !isOpen) old.removeAttribute(name);
    }
    for (const { name, value } of now.attributes) {
      if (old.getAttribute(name) === value || (name === "open" && old.matches("details"))) continue;
      if (name === "hidden" && old.matches("[data-selection]")) continue;
      old.setAttribute(name, value);
    }
  }
  function merge(old, now) {
    if (old.nodeType !== 1) {
      if (old.data !== now.data) old.data = now.data;
      return;
    }
    if (old.isEqualNode(now) && !old.querySelector("[data-chart]")) return;
    const isField = old.matches("input, textarea, select");
    const isChanged = isField && (old.type === "checkbox" ? old.checked !== old.defaultChecked
      : old.value !== old.defaultValue && !old.matches("select"));
    mergeAttributes(old, now);
    if (old.matches("[data-chart]")) return;  // it is drawn again
    if (isField && old !== document.activeElement && !isChanged && old.type !== "checkbox") old.value = now.value;
    if (old.matches("select, textarea") && old === document.activeElement) return;
    const known = new Map();
    for (const child of old.childNodes) if (keyOf(child)) known.set(keyOf(child), child);
    let at = old.firstChild;
    for (const child of [...now.childNodes]) {
      let found = at && isAlike(at, child) ? at : null;
      if (!found && keyOf(child)) {
        found = known.get(keyOf(child)) || null;
        if (found && !isAlike(found, child)) found = null;
        if (found) old.insertBefore(found, at);
      }
      if (found) {
        merge(found, child);
        at = found.nextSibling;
      } else {
        old.insertBefore(child, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  const button = document.querySelector("[data-live-toggle]");
  const STALE_SECONDS = 20;
  let source = null;
  let isPaused = store.get("tickwork-live") === "paused";
  let isBusy = false;
  let isMissed = false;  // a change came while the page was being loaded, or in a dialog
  let connectedAt = 0;
  let later = 0;
  let readAt = Date.now();
  function show(state, text) {
    if (!button) return;
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(state === "live"));
    button.querySelector("[data-live-text]").textContent = text;
    showAge();
  }
  function showAge() {
    const place = document.getElementById("stale");
    if (!place || !button || button.hidden) return;
    const seconds = (Date.now() - readAt) / 1000;
    const isStale = button.dataset.state !== "live" && seconds > STALE_SECONDS;
    place.hidden = !isStale;
    if (!isStale) return;
    const reason = button.dataset.state === "lost" ? "The server does not answer." : "Live updates are paused.";
    const text = `${reason} These values are ${duration(seconds)} old.`;
    const target = place.querySelector("[data-stale-text]");
    if (target.textContent !== text) target.textContent = text;
  }
  setInterval(showAge, 1000);
  async function refresh() {
    const region = document.getElementById("live");
    if (!region) return;
    if (isBusy || document.querySelector("dialog[open]")) { isMissed = true; return; }
    isBusy = true;
    isMissed = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.redirected && new URL(answer.url).pathname.endsWith("/login")) { location.reload(); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const now = page.getElementById("live");
      if (!now) throw new Error("another page");
      merge(region, now);
      for (const selector of [".nav", ".as-of"]) {
        const shown = document.querySelector(selector);
        const made = page.querySelector(selector);
        if (shown && made) merge(shown, made);
      }
      readAt = Date.now();
      drawCharts();
      refreshTimes();
      countChosen();
      if (source && source.readyState === EventSource.OPEN) show("live", "Live");
    } catch {
      if (button && button.dataset.state === "live") show("lost", "No answer");
    } finally {
      isBusy = false;
      showAge();
      if (isMissed && !document.querySelector("dialog[open]")) setTimeout(refresh, 1000);
    }
  }
  // The server keeps alerts and the results of its health checks for a few seconds.
  function refreshLater() {
    clearTimeout(later);
    later = setTimeout(() => { if (source) refresh(); }, 7000);
  }
  function connect() {
    if (source || isPaused || document.hidden || !document.getElementById("live")) return;
    source = new EventSource(`${base}/events`);
    source.addEventListener("open", () => {
      // What changed while there was no connection was not reported.
      if (connectedAt) refresh();
      connectedAt = Date.now();
      readAt = Math.max(readAt, performance.timeOrigin);
      show("live", "Live");
      refreshLater();
    });
    source.addEventListener("change", () => { refresh(); refreshLater(); });
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
    document.querySelector("[data-reload]")?.addEventListener("click", refresh);
    document.addEventListener("close", () => { if (isMissed) refresh(); }, true);
  }

  // ---------------------------------------------------------------- time zone
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });
  // The first page of a browser is made before the server knows its zone.
  if (root.dataset.zoneChoice === "browser" && document.cookie.includes("tickwork_browser_zone=")) {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const isSame = zone === root.dataset.zone || /^(Etc\/)?(UTC|GMT|Universal|Zulu|UCT)$/.test(zone);
    const tried = store.get("tickwork-zone-tried");
    if (!isSame && tried !== zone) {
      store.set("tickwork-zone-tried", zone);  // a zone that the server does not know is not tried again
      addEventListener("load", () => setTimeout(() => location.reload(), 0));
    } else if (isSame) {
      store.set("tickwork-zone-tried", "");
    }
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
      const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit",
        timeZone: root.dataset.zone || "UTC" });
      const times = (u, ticks) => ticks.map((at) => clock.format(new Date(at * 1000)));
      const line = (label, name) => ({ label, stroke: colour(name), width: 2,
        fill: `${colour(name)}22`, points: { show: false } });
      new uPlot({
        width: place.clientWidth, height: place.clientHeight, legend: { show: false },
        cursor: { y: false }, padding: [8, 8, 0, 0],
        tzDate: (at) => uPlot.tzDate(new Date(at * 1000), root.dataset.zone || "UTC"),
        scales: { y: { range: (u, low, high) => [0, Math.max(high * 1.1, 4)] } },
        axes: [{ ...axis, values: times }, { ...axis, size: 36 }],
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
  // Of a chart over time that scrolls, the end is the present.
  for (const each of document.querySelectorAll("[data-end]")) each.scrollLeft = each.scrollWidth;
  drawCharts();
  refreshTimes();
})();
