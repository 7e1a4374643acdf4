import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { EventStream } from './event-stream.ts';

/** The raw answer of a reader who takes what a test lets it take. */
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
  write(text: string): boolean {
    this.text += text;
    return !this.isFull;
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
  return { raw, events: new EventStream(exchange, ['X-Inner-Code', '0']) };
}

afterEach(() => vi.useRealTimers());

describe('events', () => {
  it('a field line for each line of the text, whatever ends the lines', () => {
    const { raw, events } = eventStream();
    events.event('one\ntwo\r\nthree\rfour');
    events.event('');
    events.end();
    expect(raw.text).toBe('data: one\ndata: two\ndata: three\ndata: four\n\ndata: \n\n');
    expect(raw.hasEnded).toBe(true);
  });

  it('nothing is sent before the first; its headers come with it', () => {
    const { raw, events } = eventStream();
    expect(events.isOpen).toBe(false);
    events.event('x');
    expect(events.isOpen).toBe(true);
    expect(raw.status).toBe(200);
    expect(Object.fromEntries(raw.sent)).toMatchObject({
      'x-inner-code': '0',
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
    });
    events.end();
  });

  it('an end without an event sends nothing, and leaves no timer', () => {
    vi.useFakeTimers();
    const { raw, events } = eventStream();
    events.end();
    expect(raw.text).toBe('');
    expect(raw.hasEnded).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a late failure is an event of its own, and the end', () => {
    const { raw, events } = eventStream();
    events.event('first');
    events.error('{"code":4002}');
    events.event('too late');
    expect(raw.text).toBe('data: first\n\nevent: error\ndata: {"code":4002}\n\n');
    expect(raw.hasEnded).toBe(true);
  });

  it('a comment every 15 s keeps the connection, also before the first event', () => {
    vi.useFakeTimers();
    const { raw, events } = eventStream();
    vi.advanceTimersByTime(30_000);
    events.end();
    vi.advanceTimersByTime(30_000);
    expect(raw.text).toBe(':\n\n:\n\n');
  });
});

describe('a reader that is slow', () => {
  it('takes an event when its connection has room again, and not before', () => {
    const { raw, events } = eventStream();
    const taken: number[] = [];
    events.event('1', () => taken.push(1));
    raw.isFull = true;
    events.event('2', () => taken.push(2));
    events.event('3', () => taken.push(3));
    expect(taken).toEqual([1]);
    raw.emit('drain');
    expect(taken).toEqual([1, 2, 3]);
    events.end();
  });

  it('that has left takes nothing', () => {
    const { raw, events } = eventStream();
    raw.destroyed = true;
    let taken = 0;
    events.event('1', () => {
      taken += 1;
    });
    expect({ taken, text: raw.text }).toEqual({ taken: 0, text: '' });
    events.end();
  });
});
