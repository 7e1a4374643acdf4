import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { LIMITS } from '../../core/limits.ts';
import { EventStream, errorEvent, SERVER_SENT_EVENTS } from './event-stream.ts';

/** A fake response whose write buffer is full when the test sets `isFull`. */
class FakeAnswer extends EventEmitter {
  text = '';
  status = 0;
  isFull = false;
  destroyed = false;
  hasEnded = false;
  readonly sent = new Map<string, unknown>();

  begin(status: number, headers: readonly string[]): ServerResponse {
    this.status = status;
    for (let at = 0; at < headers.length; at += 2)
      this.sent.set((headers[at] as string).toLowerCase(), headers[at + 1]);
    return this as unknown as ServerResponse;
  }
  write(data: string | Buffer): boolean {
    this.text += data.toString();
    return !this.isFull;
  }
  destroy(): void {
    this.destroyed = true;
    this.emit('close');
  }
  end(): void {
    this.hasEnded = true;
  }
}

function eventStream() {
  const raw = new FakeAnswer();
  const exchange = {
    response: raw as unknown as ServerResponse,
    begin: (status: number, headers: readonly string[]) => raw.begin(status, headers),
  };
  return { raw, events: new EventStream(exchange, ['X-Inner-Code', '0'], SERVER_SENT_EVENTS) };
}

afterEach(() => vi.useRealTimers());

describe('events of a stream', () => {
  it('an event has a field line for each line of its text, whatever ends the lines', () => {
    const { raw, events } = eventStream();
    events.event(Buffer.from('one\ntwo\r\nthree\rfour'));
    events.event(Buffer.from(''));
    events.end();
    expect(raw.text).toBe('data: one\ndata: two\ndata: three\ndata: four\n\ndata: \n\n');
    expect(raw.hasEnded).toBe(true);
  });

  it('the headers of a stream are sent with its first event', () => {
    const { raw, events } = eventStream();
    expect(events.isOpen).toBe(false);
    events.event(Buffer.from('x'));
    expect(events.isOpen).toBe(true);
    expect(raw.status).toBe(200);
    expect(Object.fromEntries(raw.sent)).toMatchObject({
      'x-inner-code': '0',
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
    });
    events.end();
  });

  it('a stream that ends without an event sends nothing, and leaves no timer', () => {
    vi.useFakeTimers();
    const { raw, events } = eventStream();
    events.end();
    expect(raw.text).toBe('');
    expect(raw.hasEnded).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a late failure is sent as an error event, and ends the stream', () => {
    const { raw, events } = eventStream();
    events.event(Buffer.from('first'));
    events.end(errorEvent('{"code":4002}'));
    events.event(Buffer.from('too late'));
    expect(raw.text).toBe('data: first\n\nevent: error\ndata: {"code":4002}\n\n');
    expect(raw.hasEnded).toBe(true);
  });

  it('a stream sends a keepalive comment every 15 s, also before the first event', () => {
    vi.useFakeTimers();
    const { raw, events } = eventStream();
    vi.advanceTimersByTime(30_000);
    events.end();
    vi.advanceTimersByTime(30_000);
    expect(raw.text).toBe(':\n\n:\n\n');
  });
});

describe('a slow reader of a stream', () => {
  it('a slow reader gets an event, and its sender gets credit, only when the connection has room again', async () => {
    const { raw, events } = eventStream();
    const taken: number[] = [];
    const grant = (bytes: number) => void taken.push(bytes);
    events.event(Buffer.from('1'), grant);
    raw.isFull = true;
    events.event(Buffer.from('22'), grant);
    events.event(Buffer.from('333'), grant);
    events.event(Buffer.from(''), grant);
    expect(taken).toEqual([1]);
    expect(raw.text).toBe('data: 1\n\ndata: 22\n\n');
    raw.isFull = false;
    raw.emit('drain');
    // Waiting events are granted together. An empty event counts as one byte.
    await vi.waitFor(() => expect(taken).toEqual([1, 2, 4]));
    expect(raw.text).toBe('data: 1\n\ndata: 22\n\ndata: 333\n\ndata: \n\n');
    events.end();
    expect(raw.hasEnded).toBe(true);
  });

  it('a slow reader gets the waiting events before the end of the stream, and a late failure after them', async () => {
    const { raw, events } = eventStream();
    raw.isFull = true;
    events.event(Buffer.from('1'));
    events.event(Buffer.from('2'));
    events.end(errorEvent('{}'));
    expect(raw.hasEnded).toBe(false);
    raw.isFull = false;
    raw.emit('drain');
    await vi.waitFor(() => expect(raw.hasEnded).toBe(true));
    expect(raw.text).toBe('data: 1\n\ndata: 2\n\nevent: error\ndata: {}\n\n');
  });

  it('a stream whose client has left takes no events and grants no credit', () => {
    const { raw, events } = eventStream();
    raw.isFull = true;
    let taken = 0;
    const grant = (bytes: number) => {
      taken += bytes;
    };
    events.event(Buffer.from('1'), grant);
    events.event(Buffer.from('2'), grant);
    raw.destroy();
    events.event(Buffer.from('3'), grant);
    raw.emit('drain');
    expect({ taken, text: raw.text }).toEqual({ taken: 0, text: 'data: 1\n\n' });
    events.end();
  });

  it('a slow reader gets no keepalive comment in the middle of an event', () => {
    vi.useFakeTimers();
    const { raw, events } = eventStream();
    raw.isFull = true;
    events.event(Buffer.from('1'));
    vi.advanceTimersByTime(30_000);
    events.end();
    expect(raw.text).toBe('data: 1\n\n');
  });
});

describe('events that consist of line ends', () => {
  it('an event of line ends is written in pieces, with turns for others, and keeps its content', async () => {
    const { raw, events } = eventStream();
    const event = Buffer.from(`${'\r\n'.repeat(200_001)}x`);
    let pieces = 0;
    const write = raw.write.bind(raw);
    raw.write = data => {
      pieces += 1;
      expect(data.length).toBeLessThan(600_000);
      return write(data);
    };
    let granted = 0;
    events.event(event, bytes => {
      granted += bytes;
    });
    expect(pieces).toBe(0);
    let turns = 0;
    while (granted < event.length) {
      turns += 1;
      await new Promise(resolve => setImmediate(resolve));
    }
    expect(turns).toBeGreaterThanOrEqual(Math.floor(event.length / 65_536));
    expect(raw.text).toBe(`${'data: \n'.repeat(200_001)}data: x\n\n`);
    events.end();
  });

  it('waiting events use the memory of their text, not of their encoded lines', () => {
    const { raw, events } = eventStream();
    raw.isFull = true;
    const event = Buffer.alloc(1024, '\n');
    for (let count = 0; count < 256; count++) events.event(event);
    expect(raw.text.length).toBeLessThan(8 * 1024);
    raw.destroy();
    events.end();
  });
});

it('all unread streams share one bound, and the one that held the most for the longest is cut off', () => {
  const size = 7 * 1024 * 1024;
  const streams = Array.from({ length: 3 + LIMITS.waitingEventBytes / size }, () => {
    const stream = eventStream();
    stream.raw.isFull = true;
    stream.events.event(Buffer.from('first'));
    stream.events.event(Buffer.alloc(size));
    return stream;
  });
  const cut = streams.filter(({ raw }) => raw.destroyed).length;
  expect(cut).toBeGreaterThan(1);
  expect(cut).toBeLessThan(6);
  for (const { raw, events } of streams) {
    raw.destroy();
    events.end();
  }
});
