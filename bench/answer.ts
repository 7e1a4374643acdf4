const HEAD_END = Buffer.from('\r\n\r\n');
const LENGTH = /content-length: *(\d+)/i;
const CLOSES = /connection: close/i;

/** What the generators of load need of an HTTP answer. */
export interface Answer {
  readonly status: number;
  /** The lines before the body. */
  readonly head: string;
  /** Where the body begins; it takes the rest of the bytes. */
  readonly bodyAt: number;
  /** Whether the server ends the connection behind it. */
  readonly closes: boolean;
}

/** Null while it is not whole. For answers with a `Content-Length`, one at a time on a connection: those of the service and of the floors. */
export function readAnswer(bytes: Buffer): Answer | null {
  const headEnd = bytes.indexOf(HEAD_END);
  if (headEnd < 0) return null;
  const head = bytes.toString('latin1', 0, headEnd);
  const bodyAt = headEnd + HEAD_END.length;
  if (bytes.length < bodyAt + Number(LENGTH.exec(head)?.[1])) return null;
  return { status: Number(head.slice(9, 12)), head, bodyAt, closes: CLOSES.test(head) };
}
