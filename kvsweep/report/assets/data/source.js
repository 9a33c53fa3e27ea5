// The data source of a report: planes embedded in the page, gzipped and in base64.

/** Source over the elements `kv-header` (JSON) and `kv-plane-NAME` of the page. */
function embeddedSource() {
  return {
    header: JSON.parse(document.getElementById("kv-header").textContent),
    bytes: (name) => gunzip(fromBase64(document.getElementById(`kv-plane-${name}`).textContent)),
  };
}

function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Promise of the bytes in a gzip stream. */
async function gunzip(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Starts the viewer over the planes in the page, with a table of each point of the class `PointTable`. */
async function showEmbedded(PointTable) {
  try {
    globalThis.kvsweepView = await viewer(embeddedSource(), PointTable);
  } catch (error) {
    document.getElementById("kv-busy").textContent = `The maps cannot be shown: ${error.message}`;
    throw error;
  }
}
