import { expect, test } from 'vitest';
import { FrameJoiner, FrameTooLong, frameHead, frameOf } from './length-frames.ts';

function takeAll(joiner: FrameJoiner): string[] {
  const taken: string[] = [];
  for (let frame = joiner.shift(); frame !== null; frame = joiner.shift()) taken.push(frame.body.toString());
  return taken;
}

const SENT = ['one', '', 'three '.repeat(50)];
const BYTES = Buffer.concat(SENT.map(text => frameOf(Buffer.from(text))));

test.each([1, 2, 3, 4, 5, 7, 100, BYTES.length])(
  'FrameJoiner restores every frame when its bytes arrive in pieces of %d',
  size => {
    const joiner = new FrameJoiner(1000);
    const taken: string[] = [];
    for (let at = 0; at < BYTES.length; at += size) {
      joiner.push(BYTES.subarray(at, at + size));
      taken.push(...takeAll(joiner));
    }
    expect(taken).toEqual(SENT);
    expect(joiner.rest()).toHaveLength(0);
  },
);

test('frameOf joins its parts into one body, and frameHead precedes a body that is sent separately', () => {
  const joiner = new FrameJoiner(1000);
  joiner.push(frameOf(Buffer.of(7), Buffer.from('abc')));
  joiner.push(frameHead(2));
  joiner.push(Buffer.from('de'));
  expect(takeAll(joiner)).toEqual(['\x07abc', 'de']);
});

test('FrameJoiner returns the bytes after the last frame from rest, and only once', () => {
  const joiner = new FrameJoiner(1000);
  joiner.push(Buffer.concat([frameOf(Buffer.from('answer')), Buffer.from('and then bytes')]));
  expect(joiner.shift()?.body.toString()).toBe('answer');
  expect(joiner.rest().toString()).toBe('and then bytes');
  expect(joiner.shift()).toBeNull();
});

test('FrameJoiner rejects a frame above its limit before the body arrives', () => {
  const joiner = new FrameJoiner(10);
  joiner.push(frameHead(10));
  expect(joiner.shift()).toBeNull();
  const other = new FrameJoiner(10);
  other.push(frameHead(11));
  expect(() => other.shift()).toThrow(FrameTooLong);
});

test('FrameJoiner supports a head that ends with the length field', () => {
  const joiner = new FrameJoiner(1000, 8);
  joiner.push(Buffer.concat([Buffer.of(2, 0, 0, 0), frameOf(Buffer.from('error'))]).subarray(0, 9));
  expect(joiner.shift()).toBeNull();
  joiner.push(Buffer.from('rror'));
  const frame = joiner.shift();
  expect([frame?.head[0], frame?.body.toString()]).toEqual([2, 'error']);
});
