const HEAD_END = Buffer.from('\r\n\r\n');
const LENGTH = /content-length: *(\d+)/i;
const CLOSES = /connection: close/i;

/** Parts of an HTTP answer that the load generators need. */
export interface Answer {
  readonly status: number;
  /** Status line and headers. */
  readonly head: string;
  /** Offset of the body, which extends to the end of the bytes. */
  readonly bodyAt: number;
  /** True if the server closes the connection after this answer. */
  readonly closes: boolean;
}

/**
 * Parses one HTTP answer. Returns null while the answer is incomplete.
 * Requires a `Content-Length` and at most one answer at a time on a connection. The service and the floors
 * meet both conditions.
 */
export function readAnswer(bytes: Buffer): Answer | null {
  const headEnd = bytes.indexOf(HEAD_END);
  if (headEnd < 0) return null;
  const head = bytes.toString('latin1', 0, headEnd);
  const bodyAt = headEnd + HEAD_END.length;
  if (bytes.length < bodyAt + Number(LENGTH.exec(head)?.[1])) return null;
  return { status: Number(head.slice(9, 12)), head, bodyAt, closes: CLOSES.test(head) };
}
