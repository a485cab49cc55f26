/* Browsers start no worker from a page in a folder (file://): there a hidden frame does its work, so that the search
   works offline. The theme's search looks for the name IFrameWorker. */
window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super()
    const frame = document.createElement("iframe")
    frame.hidden = true
    document.body.append(frame)
    const inside = (this.inside = frame.contentWindow)
    inside.document.open()
    inside.document.write(`<script src="${new URL(url, document.baseURI)}"><\/script>`)
    inside.document.close()
    inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
  }
  postMessage(data) {
    const give = () => this.inside.dispatchEvent(new MessageEvent("message", { data }))
    this.inside.document.readyState === "complete" ? give() : this.inside.addEventListener("load", give)
  }
  terminate() {}
}
if (location.protocol === "file:") window.Worker = window.IFrameWorker
