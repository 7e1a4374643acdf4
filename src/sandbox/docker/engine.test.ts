import { expect, test } from 'vitest';
import { FrameSplitter } from './engine.ts';

function frame(stream: number, text: string): Buffer {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([header, Buffer.from(text)]);
}

test('FrameSplitter returns the same frames for every chunk size', () => {
  const whole = Buffer.concat([frame(1, 'out'), frame(2, ''), frame(2, 'error'), frame(1, 'ü')]);
  const expected = ['out:out', 'error:', 'error:error', 'out:ü'];
  for (let size = 1; size <= whole.length; size++) {
    const splitter = new FrameSplitter();
    const seen: string[] = [];
    for (let at = 0; at < whole.length; at += size) {
      for (const { isStderr, data } of splitter.push(whole.subarray(at, at + size))) {
        seen.push(`${isStderr ? 'error' : 'out'}:${data}`);
      }
    }
    expect(seen).toEqual(expected);
  }
});
