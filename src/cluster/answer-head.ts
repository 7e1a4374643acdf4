import type { IncomingMessage } from 'node:http';
import { NOT_HERE } from './head.ts';

/** Head of another replica's answer: headers for the caller, and facts about the connection. */
export class AnswerHead {
  readonly status: number;
  readonly reason: string;
  /** Headers for the caller: names and values in turn, unchanged. */
  readonly headers: string[] = [];
  /** Announced length of the body. */
  length: string | undefined;
  transferEncoding: string | undefined;
  isClosing = false;
  hasUpgrade = false;
  hasDate = false;
  hasTrailer = false;
  /** Token of an answer that says "not here". */
  notHere: string | undefined;

  constructor(status: number, reason: string) {
    this.status = status;
    this.reason = reason;
  }

  static of({ statusCode = 500, statusMessage = '', rawHeaders }: IncomingMessage): AnswerHead {
    const head = new AnswerHead(statusCode, statusMessage);
    for (let at = 0; at < rawHeaders.length; at += 2) head.add(rawHeaders[at] as string, rawHeaders[at + 1] as string);
    return head;
  }

  add(name: string, value: string): void {
    switch (name.toLowerCase()) {
      case 'connection':
        if (/\bclose\b/i.test(value)) this.isClosing = true;
        return;
      case 'keep-alive':
      case 'proxy-connection':
        return;
      // Node frames the body anew.
      case 'transfer-encoding':
        this.transferEncoding = this.transferEncoding === undefined ? value : `${this.transferEncoding}, ${value}`;
        return;
      case 'content-length':
        this.length = this.length === undefined ? value : `${this.length}, ${value}`;
        break;
      case 'upgrade':
        this.hasUpgrade = true;
        break;
      case 'date':
        this.hasDate = true;
        break;
      case 'trailer':
        this.hasTrailer = true;
        break;
      case NOT_HERE:
        this.notHere = value;
        break;
    }
    this.headers.push(name, value);
  }

  /** Returns the headers for a caller that can receive trailers, or cannot. */
  sent(hasTrailers: boolean): string[] {
    if (hasTrailers || !this.hasTrailer) return this.headers;
    const kept: string[] = [];
    for (let at = 0; at < this.headers.length; at += 2) {
      const name = this.headers[at] as string;
      if (name.toLowerCase() !== 'trailer') kept.push(name, this.headers[at + 1] as string);
    }
    return kept;
  }
}
