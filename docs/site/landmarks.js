"use strict";

// The theme puts a landmark around each button that copies code, and around each list of the table of contents. Only
// the outer ones are places of the page.
const places = ".md-code__nav, .md-sidebar--secondary .md-nav .md-nav";
const quieten = () => {
  for (const nav of document.querySelectorAll(places)) {
    nav.setAttribute("role", "none");
    nav.removeAttribute("aria-label");
  }
};
new MutationObserver(quieten).observe(document.body, { childList: true, subtree: true });
quieten();
