// @platformatic/kafka behind the orders of driver.mjs.

import { Waiting } from './waiting.mjs'

const TOPIC_RESOURCE = 2
const QUICK = { sessionTimeout: 6000, rebalanceTimeout: 20_000, heartbeatInterval: 300, maxWaitTime: 100 }

export class Client {
  static async make (load, address, more) {
    return new Client(await load('@platformatic/kafka'), address, more)
  }

  constructor (kafka, address, more) {
    this.kafka = kafka
    const often = { retries: 200, retryDelay: 100 }
    this.base = { clientId: 'compat', bootstrapBrokers: [address], ...often, ...more }
    this.transactional = new Map()
    this.came = new Waiting()
    this.last = new Map() // of each partition, the message that came last
  }

  async produce ({ topic, partition, values }) {
    this.producer ??= this.newProducer({})
    const messages = values.map(value => ({ topic, partition, value }))
    await this.producer.send({ acks: -1, messages })
  }

  async join ({ group, topic }) {
    this.consumer = this.newConsumer(group)
    this.consumer.on('consumer:group:join', () => this.last.clear())
    this.stream = await this.consumer.consume({
      topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false, ...QUICK
    })
    this.stream.on('data', message => {
      this.last.set(message.partition, message)
      this.came.add(message.value)
    })
  }

  poll () {
    return { values: this.came.take() }
  }

  owned () {
    return { partitions: (this.consumer.assignments ?? []).flatMap(row => row.partitions) }
  }

  async commit () {
    for (const message of this.last.values()) {
      await message.commit()
    }
  }

  // It commits positions as those after a message of a group's member: one such message is read, and
  // given the offset that is wanted.
  async transact ({ topic, id, values, commit, group, offset }) {
    if (!this.transactional.has(id)) {
      this.transactional.set(id, this.newProducer({ idempotent: true, transactionalId: id }))
    }
    const transaction = await this.transactional.get(id).beginTransaction()
    const messages = values.map(value => ({ topic, partition: 0, value }))
    await transaction.send({ messages })
    if (group !== null) {
      await this.member(group, topic)
      await transaction.addConsumer(this.grouped)
      const { partition, metadata } = await this.someMessage()
      await transaction.addOffset({ topic, partition, metadata, offset: BigInt(offset) - 1n })
    }
    await (commit ? transaction.commit() : transaction.abort())
  }

  async member (group, topic) {
    if (this.grouped) {
      return
    }
    this.grouped = this.newConsumer(group)
    this.read = []
    this.groupedStream = await this.grouped.consume({
      topics: [topic], mode: 'earliest', autocommit: false, isolationLevel: 0, ...QUICK
    })
    this.groupedStream.on('data', message => this.read.push(message))
  }

  async someMessage () {
    for (const deadline = Date.now() + 20_000; Date.now() < deadline;) {
      if (this.read.length > 0) {
        return this.read[0]
      }
      await new Promise(resolve => setTimeout(resolve, 20))
    }
    throw new Error('no message comes')
  }

  async committed ({ topic, count }) {
    const came = new Waiting()
    const consumer = this.newConsumer(`reads-${topic}-${process.pid}-${Date.now()}`)
    const stream = await consumer.consume({
      topics: [topic], mode: 'earliest', autocommit: false, isolationLevel: 1, ...QUICK
    })
    stream.on('data', message => came.add(message.value))
    const values = await came.all(count)
    await consumer.close(true)
    return { values }
  }

  async administrate ({ what, topic, partitions, configs, name, value, group }) {
    this.admin ??= new this.kafka.Admin(this.base)
    const resource = { resourceType: TOPIC_RESOURCE, resourceName: topic }
    switch (what) {
      case 'create': {
        const rows = Object.entries(configs).map(([name, value]) => ({ name, value }))
        await this.admin.createTopics({ topics: [topic], partitions, replicas: 1, configs: rows })
        return
      }
      case 'topics':
        return { told: await this.admin.listTopics() }
      case 'partitions': {
        const { topics } = await this.admin.metadata({ topics: [topic], forceUpdate: true })
        return { told: topics.get(topic).partitionsCount }
      }
      case 'grow':
        await this.admin.createPartitions({ topics: [{ name: topic, count: partitions }] })
        return
      case 'config': {
        const resources = [{ ...resource, configurationKeys: [name] }]
        const [told] = await this.admin.describeConfigs({ resources })
        return { told: told.configs[0].value }
      }
      case 'alter': {
        const change = { name, configOperation: 0, value }
        const resources = [{ ...resource, configs: [change] }]
        await this.admin.incrementalAlterConfigs({ resources })
        return
      }
      case 'groups':
        return { told: [...(await this.admin.listGroups({ types: ['classic'] })).keys()] }
      case 'deleteTopic':
        await this.admin.deleteTopics({ topics: [topic] })
        return
      case 'deleteGroup':
        await this.admin.deleteGroups({ groups: [group] })
        return
      default:
        throw new Error(`it cannot ${what}`)
    }
  }

  newProducer (more) {
    return new this.kafka.Producer({
      ...this.base, serializers: this.kafka.stringSerializers, ...more
    })
  }

  newConsumer (groupId) {
    const deserializers = this.kafka.stringDeserializers
    return new this.kafka.Consumer({ ...this.base, groupId, deserializers, ...QUICK })
  }

  async close () {
    for (const consumer of [this.consumer, this.grouped]) {
      await consumer?.close(true)
    }
    for (const producer of [this.producer, ...this.transactional.values()]) {
      await producer?.close()
    }
    await this.admin?.close()
  }
}
