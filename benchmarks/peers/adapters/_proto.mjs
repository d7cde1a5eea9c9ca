import readline from 'node:readline'
export const DSN = process.env.DSN
export const action = process.argv[2]
export const O = JSON.parse(process.argv[3] ?? '{}')
export const now = () => (performance.timeOrigin + performance.now()) / 1e3
export const out = (o) => process.stdout.write(JSON.stringify(o) + '\n')
export const sleep = (ms) => new Promise((r) => setTimeout(r, ms))
export const W = { n: 0, s: 0, lat: [], stopped: null }
export function job (d) { W.n++; W.s += d.n; if (d.t) W.lat.push((now() - d.t) * 1e3) }
export async function readyAndWait () {
  const rl = readline.createInterface({ input: process.stdin })
  let go, stop
  const gone = new Promise((r) => { go = r })
  W.stopped = new Promise((r) => { stop = r })
  rl.on('line', (l) => { if (l === 'GO') go(); if (l === 'STOP') stop() })
  rl.on('close', () => stop())
  process.stdout.write('READY\n')
  await gone
  let last = 0
  setInterval(() => { if (W.n !== last) { last = W.n; process.stdout.write(`P ${last}\n`) } }, 5).unref()
}
export function done () {
  process.stdout.write(JSON.stringify({ handled: W.n, sum: W.s, lat_ms: W.lat.map((x) => Math.round(x * 1e3) / 1e3) }) + '\n', () => process.exit(0))
}
export async function pace (send) {
  const calls = []; let lateMax = 0
  const t0 = performance.now()
  for (let i = 0; i < O.rate * O.seconds; i++) {
    const due = t0 + (i * 1000) / O.rate
    let d = due - performance.now()
    if (d > 0) { await sleep(d) } else lateMax = Math.max(lateMax, -d)
    const t = now()
    await send({ n: i, t })
    calls.push((now() - t) * 1e3)
  }
  calls.sort((a, b) => a - b)
  out({ sent: calls.length, call_p50_ms: +calls[calls.length >> 1].toFixed(3), late_max_ms: +lateMax.toFixed(2) })
}
export async function oneByOne (send) {
  const calls = []; const began = performance.now()
  for (let n = 0; n < O.n; n++) {
    const t = performance.now()
    await send(n)
    calls.push(performance.now() - t)
  }
  const seconds = (performance.now() - began) / 1e3
  calls.sort((a, b) => a - b)
  out({ seconds, call_p50_ms: +calls[calls.length >> 1].toFixed(3) })
}
