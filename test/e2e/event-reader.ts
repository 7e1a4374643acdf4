import { request } from 'undici';
import { expect, vi } from 'vitest';
import type { Served } from '../../scripts/served.ts';

export interface Heard {
  readonly id: string;
  readonly type: string;
  readonly [field: string]: unknown;
}

/** A reader of `/api/events`; `heard` has the events so far. */
export class EventReader {
  readonly heard: Heard[] = [];
  readonly #controller = new AbortController();

  static async open(server: Served, query = '', headers: Readonly<Record<string, string>> = {}): Promise<EventReader> {
    const reader = new EventReader();
    const { statusCode, body } = await request(`${server.frontendUrl}/api/events${query}`, {
      headers,
      signal: reader.#controller.signal,
    });
    expect(statusCode).toBe(200);
    void reader.#read(body).catch(() => undefined);
    await vi.waitFor(() => expect(reader.heard).not.toEqual([]));
    return reader;
  }

  async #read(body: AsyncIterable<Buffer>): Promise<void> {
    let rest = '';
    for await (const chunk of body) {
      const blocks = (rest + chunk.toString()).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        const fields = Object.fromEntries(
          block.split('\n').map(line => [line.split(': ', 1)[0], line.slice(line.indexOf(': ') + 2)]),
        );
        if (fields.data !== undefined) this.heard.push({ id: fields.id, ...JSON.parse(fields.data) });
      }
    }
  }

  of(field: string, value: string): string[] {
    return this.heard.filter(event => event[field] === value).map(({ type, status }) => String(status ?? type));
  }

  [Symbol.dispose](): void {
    this.#controller.abort();
  }
}
