import fs from 'node:fs'
import { run, makeWorkerUtils, Logger } from 'graphile-worker'
import { DSN, action, O, W, out, job, readyAndWait, done, pace, oneByOne } from './_proto.mjs'
const logger = new Logger(() => (level, msg) => { if (level === 'error') console.error(msg) })
const preset = {
  worker: {
    connectionString: DSN, concurrentJobs: O.conc ?? 24, maxPoolSize: O.pool ?? 10, preparedStatements: true,
    pollInterval: 2000, logger,
    localQueue: O.localQueue ? { size: O.localQueue, ...(O.refetch != null ? { refetchDelay: { durationMs: O.refetch } } : {}) } : { size: -1 },
    completeJobBatchDelay: O.delay ?? -1, failJobBatchDelay: O.delay ?? -1
  }
}
if (action === 'version') {
  out({ version: JSON.parse(fs.readFileSync(new URL('./node_modules/graphile-worker/package.json', import.meta.url))).version + ' (node ' + process.versions.node + ')' })
} else if (action === 'work') {
  await readyAndWait()
  const runner = await run({ preset, noHandleSignals: true, taskList: { bench: async (p) => { job(p) } } })
  await W.stopped
  await runner.stop()
  done()
} else {
  const utils = await makeWorkerUtils({ preset })
  if (action === 'setup') await utils.migrate()
  if (action === 'enqueue') {
    await utils.withPgClient((c) => c.query('select 1'))
    if (O.how === 'one') await oneByOne((n) => utils.addJob('bench', { n }))
    if (O.how === 'tx') {
      await utils.withPgClient((c) => oneByOne(async (n) => {
        await c.query('BEGIN')
        await c.query('INSERT INTO effect VALUES ($1)', [n])
        await c.query("SELECT graphile_worker.add_job('bench', $1::json)", [{ n }])
        await c.query('COMMIT')
      }))
    }
    if (O.how !== 'bulk') { await utils.release(); process.exit(0) }
    const t = performance.now(); const chunk = O.chunk ?? 5000
    for (let a = 0; a < O.n; a += chunk) {
      const specs = []
      for (let i = a; i < Math.min(O.n, a + chunk); i++) specs.push({ identifier: 'bench', payload: { n: i }, ...(O.lanes ? { queueName: `lane-${i % O.lanes}` } : {}) })
      await utils.addJobs(specs)
    }
    out({ seconds: (performance.now() - t) / 1e3 })
  }
  if (action === 'produce') await pace((p) => utils.addJob('bench', p))
  await utils.release()
}
