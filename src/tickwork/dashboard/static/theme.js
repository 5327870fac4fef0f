// Before the page is drawn, so that it does not flash in the wrong colours.
try {
  const theme = localStorage.getItem("tickwork-theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch { /* private mode */ }
