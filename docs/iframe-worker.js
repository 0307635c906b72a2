// Search where the pages are opened from the disk: a browser starts no worker there, so Material's runs in a hidden frame.
// mkdocs-material's plugin `offline` would ask a server for such a script; it takes this one, by its name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<!doctype html>"
      this.inside = new Promise((resolve) => {
        frame.onload = () => {
          const inside = frame.contentWindow
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
          inside.importScripts = () => {} // stemmers of other languages: the site is searched in English
          const script = inside.document.createElement("script")
          script.onload = () => resolve(inside)
          script.src = new URL(address, location.href).href
          inside.document.body.append(script)
        }
      })
      document.body.append(frame)
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
