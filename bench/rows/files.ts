import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { copyFile, mkdtemp, open, rm } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { run } from '../../scripts/command.ts';
import type { Bed, BenchRow } from '../bed.ts';
import { atLeast, atMost, type Measurement, median } from '../measure.ts';

const AGENT_CODE = fileURLToPath(new URL('../agent', import.meta.url));
const MIB = 1024 * 1024;
const BOUNDARY = 'rookery-bench';
const SMALL = 1024;

/**
 * Measures the transfer of files into a sandbox and out of it over HTTP.
 * A large file shows the throughput, in comparison to `cp` in the same directory. A small file shows the
 * latency.
 */
export const files: BenchRow = {
  name: 'files',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const { url } = await bed.rookery();
    // `cp` is one copy inside the kernel. HTTP involves three processes, and one of them is the client.
    const sizeMib = bed.isQuick ? 128 : 512;
    const directory = await mkdtemp(join(tmpdir(), 'rookery-bench-'));
    const agent = await createAgent(url, bed.python.version, directory);
    try {
      const large = join(directory, 'large');
      await fill(large, sizeMib * MIB);
      const small = join(directory, 'small');
      await fill(small, SMALL);
      const to = (name: string) => `/data/${name}`;
      const sides = {
        cp: () => copy(large, join(directory, 'copied')),
        upload: () => upload(agent, large, sizeMib * MIB, to('uploaded')),
        download: () => download(agent, to('large')),
      };
      const ms = { cp: [] as number[], upload: [] as number[], download: [] as number[] };
      const smallMs = { upload: [] as number[], download: [] as number[] };
      for (let round = -1; round < bed.rounds; round += 1) {
        for (const side of ['cp', 'upload', 'download'] as const) {
          const took = await timeOf(sides[side]);
          if (round >= 0) ms[side].push(took); // the first round only warms up
        }
        for (let count = 0; count < 20; count += 1) {
          smallMs.upload.push(await timeOf(() => upload(agent, small, SMALL, to('uploaded-small'))));
          smallMs.download.push(await timeOf(() => download(agent, to('small'))));
        }
        for (const name of ['copied', 'uploaded']) await rm(join(directory, name), { force: true });
      }
      bed.raw.files = { sizeMib, ms, smallMs };
      const rate = (times: readonly number[]) => sizeMib / (median(times) / 1000);
      const against = { what: '`cp` in the same directory', value: rate(ms.cp) };
      return [
        {
          what: `upload of ${sizeMib} MiB, MiB per second`,
          value: rate(ms.upload),
          unit: '/s',
          against,
          target: atLeast('ratio', 0.1),
        },
        {
          what: `download of ${sizeMib} MiB, MiB per second`,
          value: rate(ms.download),
          unit: '/s',
          against,
          target: atLeast('ratio', 0.25),
        },
        { what: 'upload of 1 KiB, p50', value: median(smallMs.upload), unit: 'ms', target: atMost('value', 20) },
        { what: 'download of 1 KiB, p50', value: median(smallMs.download), unit: 'ms', target: atMost('value', 10) },
      ];
    } finally {
      await fetch(agent, { method: 'DELETE' });
      await rm(directory, { recursive: true, force: true });
    }
  },
};

/** Creates an agent that mounts `directory` at /data. Returns the URL of the agent. */
async function createAgent(url: string, version: string, directory: string): Promise<string> {
  const body = {
    namespace: 'bench',
    name: randomUUID(),
    mounts: [
      { source: AGENT_CODE, target: '/code', readonly: true },
      { source: directory, target: '/data', readonly: false },
    ],
    runtime_spec: {
      runtime: `python${version}`,
      codePath: '/code',
      handler: 'handler.handle',
      rootfs: { imageurl: 'host' },
      cpu: 1000,
      memory: 256,
    },
  };
  const answer = await fetch(`${url}/api/agent`, { method: 'POST', body: JSON.stringify(body) });
  if (answer.status !== 200) throw new Error(`a create answered ${answer.status}: ${await answer.text()}`);
  return `${url}/api/agent/${((await answer.json()) as { instance_id: string }).instance_id}`;
}

async function fill(path: string, bytes: number): Promise<void> {
  const file = await open(path, 'w');
  const piece = Buffer.alloc(Math.min(MIB, bytes), 'rookery ');
  for (let written = 0; written < bytes; written += piece.length) await file.write(piece);
  await file.close();
}

async function timeOf(work: () => Promise<void>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

async function copy(source: string, target: string): Promise<void> {
  // Runs `cp`, a familiar reference. If it fails, copies the file through the kernel.
  const { code } = await run('cp', [source, target], { capture: true });
  if (code !== 0) await copyFile(source, target);
}

function upload(agent: string, source: string, bytes: number, target: string): Promise<void> {
  const head = Buffer.from(
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="path"\r\n\r\n${target}\r\n` +
      `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Type: application/octet-stream\r\n\r\n`,
  );
  const tail = Buffer.from(`\r\n--${BOUNDARY}--\r\n`);
  return new Promise((resolve, reject) => {
    const request = http.request(`${agent}/files/upload`, {
      method: 'POST',
      headers: {
        'content-type': `multipart/form-data; boundary=${BOUNDARY}`,
        'content-length': head.length + bytes + tail.length,
      },
    });
    request.once('error', reject);
    request.once('response', answer => drain(answer, 'an upload').then(() => resolve(), reject));
    request.write(head);
    const body = createReadStream(source, { highWaterMark: 256 * 1024 });
    body.on('end', () => request.end(tail));
    body.pipe(request, { end: false });
  });
}

function download(agent: string, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = http.get(`${agent}/files/download?path=${encodeURIComponent(path)}`);
    request.once('error', reject);
    request.once('response', answer => drain(answer, 'a download').then(() => resolve(), reject));
  });
}

async function drain(answer: http.IncomingMessage, what: string): Promise<void> {
  let first = '';
  await pipeline(answer, async (pieces: AsyncIterable<Buffer>) => {
    for await (const piece of pieces) if (first === '') first = piece.subarray(0, 300).toString();
  });
  if (answer.statusCode !== 200) throw new Error(`${what} answered ${answer.statusCode}: ${first}`);
}
