import { StringDecoder } from 'node:string_decoder';

/**
 * Returns the output of a command as text. An output that was cut at `maxBytes` ends before an incomplete
 * character.
 */
export function outputText(bytes: Buffer, maxBytes: number): string {
  return bytes.length < maxBytes ? bytes.toString('utf8') : new StringDecoder('utf8').write(bytes);
}
