// Drives prozess: prozess.mjs FOLDER PORT produce|consume|latest TOPIC [VALUE...]
import { createRequire } from 'node:module'
import path from 'node:path'

const [folder, port, what, topic, ...values] = process.argv.slice(2)
const require = createRequire(path.join(path.resolve(folder), 'package.json'))
const { Producer, Consumer } = require('prozess')
const address = { host: '127.0.0.1', port: Number(port), topic }

function fail(error) {
  console.error(error)
  process.exit(1)
}

if (what === 'produce') {
  const producer = new Producer(topic, address)
  producer.on('error', fail)
  producer.on('connect', () => {
    producer.send(values, (error) => (error ? fail(error) : process.exit(0)))
  })
  producer.connect()
} else {
  const consumer = new Consumer(what === 'consume' ? { ...address, offset: 0 } : address)
  const found = []
  const more = () => consumer.consume((error, messages) => {
    if (error) return fail(error)
    if (messages.length === 0) {
      console.log(JSON.stringify({ found, next: Number(consumer.offset.toString()) }))
      process.exit(0)
    }
    found.push(...messages.map((each) => each.payload.toString()))
    more()
  })
  consumer.connect((error) => {
    if (error) return fail(error)
    if (what === 'consume') return more()
    consumer.getLatestOffset((failed, offset) => {
      if (failed) return fail(failed)
      console.log(offset.toString())
      process.exit(0)
    })
  })
}
