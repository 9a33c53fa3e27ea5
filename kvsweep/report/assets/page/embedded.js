// A report: the viewer over the planes in the page.

showEmbedded();
