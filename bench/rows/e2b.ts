import { Agent, request } from 'node:http';
import type { Bed, BenchRow } from '../bed.ts';
import { type Measurement, percentile } from '../measure.ts';

/** A key that a service without authentication accepts. */
const KEY = `e2b_${'0'.repeat(40)}`;
const AT_ONCE = 50;
const ENVELOPE_BYTES = 5;

interface MadeSandbox {
  readonly sandboxID: string;
  readonly envdAccessToken: string;
}

/**
 * Measures E2B sandboxes on the wire of the SDK: the time from a create to the first output of a command, one
 * at a time, and for 50 sandboxes at once.
 */
export const e2b: BenchRow = {
  name: 'e2b',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const client = new E2bClient(rookery.url);
    try {
      const totalMs: number[] = [];
      const createMs: number[] = [];
      const count = bed.isQuick ? 30 : 200;
      for (let done = -5; done < count; done += 1) {
        const startedAt = performance.now();
        const made = await client.create();
        const createdAt = performance.now();
        await client.firstOutput(made);
        const answeredAt = performance.now();
        await client.kill(made);
        if (done < 0) continue;
        createMs.push(createdAt - startedAt);
        totalMs.push(answeredAt - startedAt);
      }
      const startedAt = performance.now();
      const sandboxes = await Promise.all(Array.from({ length: AT_ONCE }, async () => await client.create()));
      await Promise.all(sandboxes.map(async made => await client.firstOutput(made)));
      const atOnceMs = performance.now() - startedAt;
      await Promise.all(sandboxes.map(async made => await client.kill(made)));
      bed.raw.e2b = { createMs, totalMs, atOnceMs };
      return [
        { what: 'E2B create, p50', value: percentile(createMs, 0.5), unit: 'ms' },
        { what: "E2B create → first command's output, p50", value: percentile(totalMs, 0.5), unit: 'ms' },
        { what: "E2B create → first command's output, p99", value: percentile(totalMs, 0.99), unit: 'ms' },
        { what: `${AT_ONCE} E2B sandboxes at once, until each has run a command`, value: atOnceMs, unit: 'ms' },
      ];
    } finally {
      client.close();
    }
  },
};

/** The requests of the SDK that the row needs, over connections that stay open. */
class E2bClient {
  readonly #url: string;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(url: string) {
    this.#url = url;
  }

  async create(): Promise<MadeSandbox> {
    const body = Buffer.from(JSON.stringify({ templateID: 'base', timeout: 300 }));
    const text = await this.#send('POST', '/e2b/v2/sandboxes', { 'content-type': 'application/json' }, body);
    return JSON.parse(text.toString()) as MadeSandbox;
  }

  /** Runs `echo hi` as the SDK does. Throws when the output is another one. */
  async firstOutput({ sandboxID, envdAccessToken }: MadeSandbox): Promise<void> {
    const process = { cmd: '/bin/bash', args: ['-l', '-c', 'echo hi'] };
    const message = Buffer.from(JSON.stringify({ process, stdin: false }));
    const head = Buffer.alloc(ENVELOPE_BYTES);
    head.writeUInt32BE(message.length, 1);
    const headers = {
      'content-type': 'application/connect+json',
      'connect-protocol-version': '1',
      'e2b-sandbox-id': sandboxID,
      'e2b-sandbox-port': '49983',
      'x-access-token': envdAccessToken,
    };
    const answer = await this.#send(
      'POST',
      '/e2b/sandbox/process.Process/Start',
      headers,
      Buffer.concat([head, message]),
    );
    if (!answer.includes(Buffer.from('hi\n').toString('base64'))) throw new Error(`the command printed ${answer}`);
  }

  async kill({ sandboxID }: MadeSandbox): Promise<void> {
    await this.#send('DELETE', `/e2b/sandboxes/${sandboxID}`, {}, Buffer.alloc(0));
  }

  close(): void {
    this.#agent.destroy();
  }

  #send(method: string, path: string, headers: Readonly<Record<string, string>>, body: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const all = { 'x-api-key': KEY, 'content-length': body.length, ...headers };
      const asked = request(`${this.#url}${path}`, { method, headers: all, agent: this.#agent }, answer => {
        const parts: Buffer[] = [];
        answer.on('data', (part: Buffer) => parts.push(part));
        answer.once('error', reject);
        answer.once('end', () => {
          const bytes = Buffer.concat(parts);
          if ((answer.statusCode ?? 0) < 300) resolve(bytes);
          else reject(new Error(`${method} ${path}: ${answer.statusCode} ${bytes}`));
        });
      });
      asked.once('error', reject);
      asked.end(body);
    });
  }
}
