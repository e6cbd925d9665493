// The BullMQ producer and worker of the bench: one order in, one line of JSON out.
// Fast settings its documentation offers: addBulk, finished jobs removed, concurrency in one process.
"use strict";

const { Queue, Worker } = require("bullmq");

const order = JSON.parse(process.argv[2]);
const connection = { host: "127.0.0.1", port: order.port, maxRetriesPerRequest: null };
const CHUNK = 500;

function answer(figures) {
  process.stdout.write(JSON.stringify(figures) + "\n");
}

async function put() {
  const queue = new Queue("bench", { connection, defaultJobOptions: { removeOnComplete: true } });
  await queue.waitUntilReady();
  const scheduled = order.task === "schedule";
  const started = process.hrtime.bigint();
  for (let at = 0; at < order.jobs; at += CHUNK) {
    const chunk = [];
    for (let n = at; n < Math.min(at + CHUNK, order.jobs); n++) {
      const due = order.start + n * order.gap;
      chunk.push(
        scheduled
          ? {
              name: "noop",
              data: { fields: order.fields, due },
              opts: { delay: Math.max(0, Math.round(due * 1000 - Date.now())) },
            }
          : { name: "noop", data: { fields: order.fields } },
      );
    }
    await queue.addBulk(chunk);
  }
  answer({ seconds: Number(process.hrtime.bigint() - started) / 1e9 });
  await queue.close();
}

function cpuSeconds() {
  const used = process.cpuUsage();
  return (used.user + used.system) / 1e6;
}

function work() {
  const late = [];
  let ran = 0;
  let firstAt = 0n;
  let firstCpu = 0;
  const worker = new Worker(
    "bench",
    async (job) => {
      if (job.data.due !== undefined) late.push(Date.now() / 1000 - job.data.due);
      ran += 1;
      if (ran === 1) {
        firstCpu = cpuSeconds();
        firstAt = process.hrtime.bigint();
      }
      if (ran === order.jobs) {
        const seconds = Number(process.hrtime.bigint() - firstAt) / 1e9;
        const cpu_seconds = cpuSeconds() - firstCpu;
        answer(order.task === "lateness" ? { lateness: late } : { seconds, cpu_seconds });
      }
    },
    { connection, concurrency: order.concurrency },
  );
  worker.on("error", (error) => console.error(error));
}

if (order.task === "enqueue" || order.task === "schedule") put();
else work();
