/* A formula, a table or a plot too wide for a phone scrolls; with this it also scrolls for a reader who has only keys. */
(function () {
  "use strict";
  const mend = () =>
    document.querySelectorAll('mjx-container[display="true"], .cell_output').forEach((part) => {
      if (part.scrollWidth > part.clientWidth) part.setAttribute("tabindex", "0");
      else part.removeAttribute("tabindex");
    });
  window.addEventListener("load", () => {
    mend();
    const ready = window.MathJax && MathJax.startup && MathJax.startup.promise;
    if (ready) ready.then(mend);
  });
  window.addEventListener("resize", mend);
})();
