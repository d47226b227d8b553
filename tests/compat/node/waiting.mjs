// Values that came and nobody asked for yet.

const PATIENCE_MS = 30_000
const AFTER_MS = 400 // for what may come beyond the last that is expected

export class Waiting {
  constructor () {
    this.values = []
    this.added = () => {}
  }

  add (value) {
    this.values.push(value)
    this.added()
  }

  take () {
    return this.values.splice(0)
  }

  // `count` values, or as many as come in time, and what comes shortly after them.
  async all (count) {
    await new Promise(resolve => {
      const patience = setTimeout(resolve, PATIENCE_MS)
      this.added = () => {
        if (this.values.length >= count) {
          clearTimeout(patience)
          resolve()
        }
      }
      this.added()
    })
    await new Promise(resolve => setTimeout(resolve, AFTER_MS))
    return this.take()
  }
}
