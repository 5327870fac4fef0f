// Before the page is drawn, so that it does not flash in the wrong colours.
try {
  const theme = localStorage.getItem("tickwork-theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch { /* private mode */ }
// The server makes the pages: it needs the time zone of the browser.
try {
  const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  const place = document.documentElement.dataset.base || "/";
  document.cookie = `tickwork_browser_zone=${zone}; path=${place}; max-age=31536000; samesite=lax`;
} catch { /* no cookies */ }
