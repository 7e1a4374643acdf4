import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import type { Bed, BenchRow } from '../bed.ts';
import { registerFunction } from '../functions.ts';
import { atMost, delay, type Measurement } from '../measure.ts';

const INSTANCES = 10;
/** Limit for the growth of the server's memory while the streams run, in MB. */
const MAX_GROWTH_MB = 20;

/**
 * Measures the server's memory with 1000 readers that each receive one event per second. It must not grow.
 */
export const functionStreams: BenchRow = {
  name: 'function-streams',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const streams = 1000;
    const seconds = bed.isQuick ? 8 : 30;
    const path = await registerFunction(rookery, bed.python.version, 'streams', {
      handler: 'handler.tick',
      concurrentNum: streams / INSTANCES,
      maxInstance: INSTANCES,
      timeout: 600,
    });
    const readers = await Promise.all(Array.from({ length: streams }, () => read(rookery.url, path)));
    try {
      await delay(3000);
      const before = rssMb(rookery.served.pid);
      const eventsBefore = readers.reduce((sum, reader) => sum + reader.events, 0);
      await delay(seconds * 1000);
      const after = rssMb(rookery.served.pid);
      const events = readers.reduce((sum, reader) => sum + reader.events, 0) - eventsBefore;
      bed.raw['function-streams'] = { streams, seconds, before, after, events };
      if (readers.some(reader => reader.hasEnded)) throw new Error('a stream ended');
      return [
        { what: `${streams} streams of 1 event a second, events`, value: events / seconds, unit: '/s' },
        {
          what: `the same over ${seconds} s, growth of the server's memory`,
          value: after - before,
          unit: 'MB',
          target: atMost('value', MAX_GROWTH_MB),
        },
      ];
    } finally {
      for (const { socket } of readers) socket.destroy();
    }
  },
};

interface StreamReader {
  readonly socket: Socket;
  events: number;
  hasEnded: boolean;
}

/** Opens a stream. Resolves with the first event. */
function read(url: string, path: string): Promise<StreamReader> {
  const { hostname, port } = new URL(url);
  const body = '{}';
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port) });
    const reader: StreamReader = { socket, events: 0, hasEnded: false };
    socket.write(
      `POST ${path} HTTP/1.1\r\nhost: ${hostname}:${port}\r\naccept: text/event-stream\r\n` +
        `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    socket.on('data', chunk => {
      const text = chunk.toString('latin1');
      if (reader.events === 0 && !text.startsWith('HTTP/1.1 200')) reject(new Error(text.slice(0, 300)));
      reader.events += text.split('data: ').length - 1;
      if (reader.events > 0) resolve(reader);
    });
    socket.once('error', reject);
    socket.once('close', () => {
      reader.hasEnded = true;
      reject(new Error('the stream ended before its first event'));
    });
  });
}

function rssMb(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
}
