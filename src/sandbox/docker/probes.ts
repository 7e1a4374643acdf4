import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import { failedPrecondition } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { type Engine, statusOf } from './engine.ts';
import { LABEL_INSTALLATION, LABEL_INSTANCE } from './labels.ts';
import { FrameSplitter } from './multiplex.ts';

const PROBE_TIMEOUT_MS = 20_000;
const PROBE_MEMORY_BYTES = 512 * 1024 * 1024;
const PROBE_PROCESSES = 64;
const MAX_OUTPUT_BYTES = 64 * 1024;

/**
 * Returns the output of an image's command, stdout and stderr together. The command runs in a container of
 * its own, without network and capabilities. Null: the image has no such command. Fails with
 * `failed_precondition` when the command exceeds its time limit.
 */
export async function outputOf(
  engine: Engine,
  installation: string,
  image: string,
  argv: readonly string[],
  securityOptions: readonly string[],
): Promise<string | null> {
  const { id } = await engine.request('make a probe', docker =>
    docker.createContainer({
      Image: image,
      Entrypoint: [...argv],
      Cmd: [],
      User: '0',
      AttachStdout: true,
      AttachStderr: true,
      // If the server ends first, the reconciler finds a container without a record and removes it.
      Labels: { [LABEL_INSTALLATION]: installation, [LABEL_INSTANCE]: randomUUID() },
      Healthcheck: { Test: ['NONE'] },
      HostConfig: {
        NetworkMode: 'none',
        CapDrop: ['ALL'],
        SecurityOpt: [...securityOptions],
        Memory: PROBE_MEMORY_BYTES,
        MemorySwap: PROBE_MEMORY_BYTES,
        PidsLimit: PROBE_PROCESSES,
        LogConfig: { Type: 'none', Config: {} },
      },
    }),
  );
  try {
    const container = engine.docker.getContainer(id);
    const attach = { stream: true, stdout: true, stderr: true };
    const stream = await engine.request('attach to a probe', () => container.attach(attach));
    const reading = readAll(stream as unknown as Readable);
    reading.catch(() => undefined);
    try {
      await engine.request('start a probe', () => container.start());
    } catch (error) {
      if (statusOf(error) === 404 || /executable file not found|no such file/i.test(String(error))) return null;
      throw error;
    }
    const late = `${argv.join(' ')} in image ${image} did not end within ${PROBE_TIMEOUT_MS / 1000} s`;
    return await within(reading, PROBE_TIMEOUT_MS, late).catch((error: unknown) => {
      throw failedPrecondition(late, { cause: error });
    });
  } finally {
    await engine
      .request('remove a probe', docker => docker.getContainer(id).remove({ force: true, v: true }))
      .catch(() => undefined);
  }
}

async function readAll(stream: Readable): Promise<string> {
  const splitter = new FrameSplitter();
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    for (const { data } of splitter.push(chunk as Buffer)) {
      bytes += data.length;
      if (bytes <= MAX_OUTPUT_BYTES) parts.push(data);
    }
  }
  return Buffer.concat(parts).toString('utf8');
}
