import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gunzipSync } from 'node:zlib';

/** A received span. */
export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Id of the parent span; `''` for a root span. */
  readonly parentSpanId: string;
  readonly name: string;
  /** Nanoseconds since the epoch. */
  readonly start: bigint;
  readonly end: bigint;
  readonly attributes: ReadonlyMap<string, string>;
  /** Status code; 2 means that the operation failed. */
  readonly status: number;
  /** Attributes of the span's resource. */
  readonly resource: ReadonlyMap<string, string>;
}

export interface OtlpReceiver extends AsyncDisposable {
  readonly url: string;
  readonly spans: readonly ReceivedSpan[];
  /** Heads of the received requests. */
  readonly requests: readonly { readonly path: string; readonly headers: Readonly<Record<string, unknown>> }[];
  /** Sets the status of all later answers. */
  answerWith(status: number): void;
}

/** Starts a collector of OTLP over HTTP, in protobuf, that keeps everything it receives. */
export async function otlpReceiver(): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  const requests: { path: string; headers: Record<string, unknown> }[] = [];
  let status = 200;
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', piece => pieces.push(piece));
    request.on('end', () => {
      requests.push({ path: request.url ?? '', headers: request.headers });
      const body = Buffer.concat(pieces);
      if (status === 200)
        spans.push(...readSpans(request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body));
      response.writeHead(status, { 'content-type': 'application/x-protobuf' }).end();
    });
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    requests,
    answerWith(next) {
      status = next;
    },
    [Symbol.asyncDispose]: () =>
      new Promise(resolve => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** A field of a protobuf message: its number and its undecoded value. */
type Field = readonly [number, Buffer | bigint];

function readSpans(request: Buffer): ReceivedSpan[] {
  return messages(request, 1).flatMap(ofResource => {
    const resource = new Map(messages(ofResource, 1).flatMap(each => messages(each, 1).map(readAttribute)));
    return messages(ofResource, 2).flatMap(scope => messages(scope, 2).map(span => readSpan(span, resource)));
  });
}

function readSpan(span: Buffer, resource: ReadonlyMap<string, string>): ReceivedSpan {
  const bytes = (wanted: number) => messages(span, wanted)[0] ?? Buffer.alloc(0);
  const number = (wanted: number) => fields(span).find(([field]) => field === wanted)?.[1] as bigint;
  const status = fields(bytes(15)).find(([field]) => field === 3)?.[1] ?? 0n;
  return {
    traceId: bytes(1).toString('hex'),
    spanId: bytes(2).toString('hex'),
    parentSpanId: bytes(4).toString('hex'),
    name: bytes(5).toString(),
    start: number(7),
    end: number(8),
    attributes: new Map(messages(span, 9).map(readAttribute)),
    status: Number(status),
    resource,
  };
}

/** Decodes an attribute with a text value; the service sends no other kind. */
function readAttribute(attribute: Buffer): [string, string] {
  const value = messages(attribute, 2)[0] ?? Buffer.alloc(0);
  return [String(messages(attribute, 1)[0]), String(messages(value, 1)[0] ?? '')];
}

function messages(message: Buffer, wanted: number): Buffer[] {
  return fields(message).flatMap(([field, value]) => (field === wanted && Buffer.isBuffer(value) ? [value] : []));
}

function fields(message: Buffer): Field[] {
  const found: Field[] = [];
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message.readUInt8(at++);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const tag = Number(varint());
    const field = tag >> 3;
    if ((tag & 7) === 0) found.push([field, varint()]);
    else if ((tag & 7) === 1) {
      found.push([field, message.readBigUInt64LE(at)]);
      at += 8;
    } else if ((tag & 7) === 2) {
      const length = Number(varint());
      found.push([field, message.subarray(at, at + length)]);
      at += length;
    } else if ((tag & 7) === 5) at += 4;
    else throw new Error(`a field of kind ${tag & 7} in a protobuf message`);
  }
  return found;
}
