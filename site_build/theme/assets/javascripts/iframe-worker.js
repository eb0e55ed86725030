// Search in pages that were opened as files: browsers refuse workers there, and a hidden frame does a worker's work.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.document.open()
      inside.document.write("<html><body></body></html>")
      inside.document.close()
      inside.postMessage = data => this.tell(data)
      inside.importScripts = (...urls) => Promise.all(urls.map(one => this.load(one)))
      this.ready = this.load(url)
    }

    load(url) {
      const inside = this.frame.contentDocument
      return new Promise((done, failed) => {
        const script = inside.createElement("script")
        Object.assign(script, { src: url, onload: done, onerror: failed })
        inside.body.appendChild(script)
      })
    }

    tell(data) {
      const event = new MessageEvent("message", { data })
      this.dispatchEvent(event)
      this.onmessage?.(event)
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
