// kafkajs behind the orders of driver.mjs.

import { Waiting } from './waiting.mjs'

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const TOPIC_RESOURCE = 2
const QUICK = { sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 100 }

export class Client {
  // A token comes by a function of the client.
  static async make (load, address, more) {
    const { default: kafkajs } = await load('kafkajs')
    const { Kafka, logLevel } = kafkajs
    const token = more.sasl?.token
    if (token) {
      more.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
    }
    const base = { clientId: 'compat', brokers: [address], logLevel: logLevel.NOTHING }
    const kafka = new Kafka({ ...base, ...more })
    return new Client(kafka)
  }

  constructor (kafka) {
    this.kafka = kafka
    this.open = []
    this.transactional = new Map()
    this.came = new Waiting()
    this.next = new Map() // of each partition that came
    this.partitions = []
  }

  async produce ({ topic, partition, values }) {
    if (!this.producer) {
      this.producer = await this.connected(this.kafka.producer())
    }
    const messages = values.map(value => ({ partition, value }))
    await this.producer.send({ topic, acks: -1, messages })
  }

  async join ({ group, topic }) {
    this.topic = topic
    this.consumer = await this.connected(this.kafka.consumer({ groupId: group, ...QUICK }))
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.partitions = payload.memberAssignment[topic] ?? []
      this.next.clear()
    })
    await this.consumer.subscribe({ topics: [topic], fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.next.set(partition, BigInt(message.offset) + 1n)
        this.came.add(message.value.toString())
      }
    })
  }

  poll () {
    return { values: this.came.take() }
  }

  owned () {
    return { partitions: this.partitions }
  }

  async commit () {
    const rows = [...this.next].map(([partition, offset]) => ({
      topic: this.topic, partition, offset: String(offset)
    }))
    await this.consumer.commitOffsets(rows)
  }

  async transact ({ topic, id, values, commit, group, offset }) {
    if (!this.transactional.has(id)) {
      const settings = { transactionalId: id, idempotent: true, maxInFlightRequests: 1 }
      this.transactional.set(id, await this.connected(this.kafka.producer(settings)))
    }
    const transaction = await this.transactional.get(id).transaction()
    const messages = values.map(value => ({ partition: 0, value }))
    await transaction.send({ topic, acks: -1, messages })
    if (group !== null) {
      const partitions = [{ partition: 0, offset: String(offset) }]
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
    }
    await (commit ? transaction.commit() : transaction.abort())
  }

  async committed ({ topic, count }) {
    const came = new Waiting()
    const settings = { groupId: `reads-${topic}-${process.pid}-${Date.now()}`, ...QUICK }
    const consumer = this.kafka.consumer({ ...settings, readUncommitted: false })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => came.add(message.value.toString()) })
    const values = await came.all(count)
    await consumer.disconnect()
    return { values }
  }

  async administrate ({ what, topic, partitions, configs, name, value, group }) {
    this.admin ??= await this.connected(this.kafka.admin())
    const resource = { type: TOPIC_RESOURCE, name: topic }
    switch (what) {
      case 'create': {
        const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
        const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries }
        if (!await this.admin.createTopics({ topics: [wanted] })) {
          throw new Error('the topic exists')
        }
        return
      }
      case 'topics':
        return { told: await this.admin.listTopics() }
      case 'partitions': {
        const { topics } = await this.admin.fetchTopicMetadata({ topics: [topic] })
        return { told: topics[0].partitions.length }
      }
      case 'grow':
        await this.admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] })
        return
      case 'config': {
        const asked = { resources: [{ ...resource, configNames: [name] }], includeSynonyms: false }
        const { resources } = await this.admin.describeConfigs(asked)
        return { told: resources[0].configEntries[0].configValue }
      }
      case 'alter': {
        const resources = [{ ...resource, configEntries: [{ name, value }] }]
        await this.admin.alterConfigs({ validateOnly: false, resources })
        return
      }
      case 'groups':
        return { told: (await this.admin.listGroups()).groups.map(row => row.groupId) }
      case 'deleteTopic':
        await this.admin.deleteTopics({ topics: [topic] })
        return
      case 'deleteGroup':
        await this.admin.deleteGroups([group])
        return
      default:
        throw new Error(`it cannot ${what}`)
    }
  }

  async connected (made) {
    await made.connect()
    this.open.push(made)
    return made
  }

  async close () {
    for (const one of this.open) {
      await one.disconnect()
    }
  }
}
