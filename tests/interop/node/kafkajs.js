// kafkajs against a broker: node kafkajs.js BOOTSTRAP CASE. Ends with status 1 at the first surprise.
const assert = require('assert')
const { randomUUID } = require('crypto')
const { Kafka, CompressionTypes, ConfigResourceTypes, Partitioners, PartitionAssigners, logLevel } = require('kafkajs')

const [bootstrap, name] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'interop', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8 } })
const unique = prefix => `${prefix}-${randomUUID().slice(0, 12)}`
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function until(what, condition) {
  const end = Date.now() + 40000
  while (!(await condition())) {
    assert(Date.now() < end, `waited in vain: ${what}`)
    await sleep(50)
  }
}

async function withAdmin(work) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await work(admin)
  } finally {
    await admin.disconnect()
  }
}

async function createTopic(partitions) {
  const topic = unique('kafkajs')
  const created = await withAdmin(admin =>
    admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }], waitForLeaders: true }))
  assert(created)
  return topic
}

async function produce(topic, count, options = {}) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...options.producer })
  await producer.connect()
  const messages = Array.from({ length: count }, (_, i) => ({ key: `${i}`, value: `v${i}`, headers: { h: 'x' } }))
  await producer.send({ topic, messages, acks: options.acks ?? -1, compression: options.compression })
  await producer.disconnect()
}

function member(topic, groupId, options = {}) {
  const consumer = kafka.consumer({
    groupId, heartbeatInterval: 300, sessionTimeout: 6000, rebalanceTimeout: 6000, maxWaitTimeInMs: 200, ...options
  })
  const state = { seen: [], share: 0, consumer }
  consumer.on(consumer.events.GROUP_JOIN, event => {
    state.share = Object.values(event.payload.memberAssignment).reduce((sum, partitions) => sum + partitions.length, 0)
  })
  state.start = async () => {
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommitInterval: 100,
      eachMessage: async ({ message }) => { state.seen.push(message) }
    })
    return state
  }
  return state
}

const cases = {
  async basic() {
    const topic = await createTopic(3)
    await produce(topic, 50)
    await produce(topic, 50, { acks: 1, compression: CompressionTypes.GZIP })
    await produce(topic, 50, { producer: { idempotent: true, maxInFlightRequests: 1 } })
    await produce(topic, 50, { acks: 0 })
    const one = await member(topic, unique('group')).start()
    await until('all records', () => one.seen.length === 200)
    assert(one.seen.every(message => message.headers.h.toString() === 'x'))
    await one.consumer.disconnect()
    const offsets = await withAdmin(admin => admin.fetchTopicOffsets(topic))
    assert.strictEqual(offsets.reduce((sum, partition) => sum + Number(partition.high), 0), 200)
  },

  async groups() {
    const topic = await createTopic(4)
    const groupId = unique('group')
    const a = await member(topic, groupId, { partitionAssigners: [PartitionAssigners.roundRobin] }).start()
    await produce(topic, 40)
    await until('the first member reads all', () => a.seen.length === 40)
    const b = await member(topic, groupId, { partitionAssigners: [PartitionAssigners.roundRobin] }).start()
    await until('both have a part', () => a.share === 2 && b.share === 2)
    await produce(topic, 40)
    await until('they read all', () => a.seen.length + b.seen.length === 80)
    await a.consumer.disconnect()
    await until('the other has all', () => b.share === 4)
    const before = b.seen.length
    b.consumer.seek({ topic, partition: 0, offset: '0' })
    await until('records are read again', () => b.seen.length > before)
    await b.consumer.disconnect()
    await withAdmin(async admin => {
      const offsets = await admin.fetchOffsets({ groupId, topics: [topic] })
      assert.strictEqual(offsets[0].partitions.length, 4)
      await until('the group is empty', async () => (await admin.describeGroups([groupId])).groups[0].state === 'Empty')
      await admin.setOffsets({ groupId, topic, partitions: [{ partition: 1, offset: '3' }] })
      const reset = await admin.fetchOffsets({ groupId, topics: [topic] })
      assert.strictEqual(reset[0].partitions.find(({ partition }) => partition === 1).offset, '3')
      await admin.resetOffsets({ groupId, topic, earliest: true })
      await admin.deleteGroups([groupId])
      const { groups } = await admin.listGroups()
      assert(!groups.some(group => group.groupId === groupId))
    })
  },

  async transactions() {
    const input = await createTopic(1)
    const output = await createTopic(1)
    const groupId = unique('group')
    const producer = kafka.producer({
      transactionalId: unique('tx'), idempotent: true, maxInFlightRequests: 1,
      createPartitioner: Partitioners.DefaultPartitioner
    })
    await producer.connect()
    for (const commit of [true, false, true]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic: output, messages: [{ value: `${commit}` }, { value: `${commit}` }] })
      await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: input, partitions: [{ partition: 0, offset: commit ? '5' : '9' }] }] })
      await (commit ? transaction.commit() : transaction.abort())
    }
    await producer.disconnect()
    const reader = await member(output, unique('group'), { readUncommitted: false }).start()
    await until('what is committed', () => reader.seen.length >= 4)
    await sleep(300)
    assert.deepStrictEqual(reader.seen.map(message => message.value.toString()), ['true', 'true', 'true', 'true'])
    await reader.consumer.disconnect()
    const offsets = await withAdmin(admin => admin.fetchOffsets({ groupId, topics: [input] }))
    assert.strictEqual(offsets[0].partitions[0].offset, '5')
  },

  async admin() {
    const topic = await createTopic(2)
    await produce(topic, 20)
    await withAdmin(async admin => {
      await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      assert.strictEqual(topics[0].partitions.length, 3)
      assert((await admin.listTopics()).includes(topic))
      const cluster = await admin.describeCluster()
      assert.strictEqual(cluster.brokers.length, 1)
      await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value: '123456' }] }] })
      const described = await admin.describeConfigs({ includeSynonyms: true, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }] })
      assert.strictEqual(described.resources[0].configEntries[0].configValue, '123456')
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '-1' }] })
      const offsets = await admin.fetchTopicOffsets(topic)
      const first = offsets.find(({ partition }) => partition === 0)
      assert.strictEqual(first.low, first.high)
      await admin.fetchTopicOffsetsByTimestamp(topic, 1)
      assert.deepStrictEqual((await admin.listPartitionReassignments({})).topics, [])
      await admin.deleteTopics({ topics: [topic] })
      assert(!(await admin.listTopics()).includes(topic))
    })
  }
}

cases[name]().then(() => {
  console.log(`ok ${name}`)
  process.exit(0)
}, error => {
  console.error(error)
  process.exit(1)
})
