// A Kafka client for Node without a user: takes orders as JSON lines on stdin, answers each with one.
//
//   node driver.mjs CLIENT FOLDER ADDRESS [SETTINGS]
//
// CLIENT: kafkajs or platformatic; FOLDER: its modules; SETTINGS: more of the client's own, as JSON
//
//   {"do":"produce","topic":T,"partition":P,"values":[TEXT...]}    -> {}
//   {"do":"join","group":G,"topic":T}       a member that reads from what is committed on -> {}
//   {"do":"poll"}                           -> {"values":[TEXT...]}, what came since the last poll
//   {"do":"owned"}                          -> {"partitions":[P...]}
//   {"do":"commit"}                         commits all that came -> {}
//   {"do":"transact","topic":T,"id":ID,"values":[TEXT...],"commit":B,"group":G or null,"offset":O}
//                                           one transaction in partition 0 -> {}
//   {"do":"committed","topic":T,"count":N}  -> {"values":[TEXT...]}: what a reader of committed
//                                           records sees of a topic: N values, and those after them
//   {"do":"administrate","what":W,...}      -> {"told":...}: see administrators.py
//
// What goes wrong comes back as {"error":TEXT}.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const ORDERS = new Set([
  'produce', 'join', 'poll', 'owned', 'commit', 'transact', 'committed', 'administrate'
])
const [name, folder, address, more] = process.argv.slice(2)
const modules = createRequire(`${folder}/`)
const load = module => import(pathToFileURL(modules.resolve(module)))
const { Client } = await import(`./${name}.mjs`)
const client = await Client.make(load, address, JSON.parse(more ?? '{}'))

async function obey (order) {
  if (!ORDERS.has(order.do)) {
    throw new Error(`no such order: ${order.do}`)
  }
  return (await client[order.do](order)) ?? {}
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer
  try {
    answer = await obey(JSON.parse(line))
  } catch (error) {
    answer = { error: `${error.stack} ${(error.errors ?? []).map(String)} ${error.cause ?? ''}` }
  }
  console.log(JSON.stringify(answer))
}
await client.close()
process.exit(0)
