import fs from 'node:fs'
import pg from 'pg'
import { PgBoss } from 'pg-boss'
import { DSN, action, O, W, out, job, readyAndWait, done, pace, oneByOne } from './_proto.mjs'
if (action === 'version') {
  out({ version: JSON.parse(fs.readFileSync(new URL('./node_modules/pg-boss/package.json', import.meta.url))).version + ' (node ' + process.versions.node + ')' })
  process.exit(0)
}
const boss = new PgBoss({ connectionString: DSN, max: O.pool ?? 10, useListenNotify: !!O.latency && !O.noListen && action === 'work', schedule: false })
boss.on('error', (e) => console.error(e))
await boss.start()
if (action === 'setup') await boss.createQueue('bench', { notify: !!O.latency && !O.noListen, partition: !!O.partition })
if (action === 'enqueue') {
  if (O.how === 'one') await oneByOne((n) => boss.send('bench', { n }))
  if (O.how === 'tx') {
    const client = new pg.Client({ connectionString: DSN })
    await client.connect()
    const db = { executeSql: (text, values) => client.query(text, values) }
    await oneByOne(async (n) => {
      await client.query('BEGIN')
      await client.query('INSERT INTO effect VALUES ($1)', [n])
      await boss.send('bench', { n }, { db })
      await client.query('COMMIT')
    })
    await client.end()
  }
  const t = performance.now(); const chunk = O.chunk ?? 5000
  if (O.how !== 'bulk') { await boss.stop({ graceful: true, close: true, timeout: 5000 }); process.exit(0) }
  for (let a = 0; a < O.n; a += chunk) {
    const js = []
    for (let i = a; i < Math.min(O.n, a + chunk); i++) js.push({ data: { n: i } })
    await boss.insert('bench', js)
  }
  out({ seconds: (performance.now() - t) / 1e3 })
}
if (action === 'work') {
  await readyAndWait()
  await boss.work('bench', {
    batchSize: O.batch ?? 100, localConcurrency: O.conc ?? 1, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true,
    ...(O.priority === false ? { priority: false } : {})
  }, async (jobs) => { for (const j of jobs) job(j.data) })
  await W.stopped
}
if (action === 'produce') await pace((p) => boss.send('bench', p))
await boss.stop({ graceful: true, close: true, timeout: 5000 })
if (action === 'work') done()
else process.exit(0)
