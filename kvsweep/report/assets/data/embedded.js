// A report: the viewer over the planes in the page.

viewer(embeddedSource()).then((view) => { globalThis.kvsweepView = view; }, (error) => {
  document.getElementById("kv-busy").textContent = `The maps cannot be shown: ${error.message}`;
  throw error;
});
