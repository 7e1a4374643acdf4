import type { Random } from '../parts/random.ts';

/**
 * Answer of a hostile HTTP server, and its timing. Some answers are sound; others have an error at a random
 * place.
 */
export interface HostileAnswer {
  /** Parts of the answer, which are sent one after another with a pause between. */
  readonly parts: readonly Buffer[];
  readonly end: 'end' | 'reset' | 'stay';
}

const VERSIONS = ['HTTP/1.1', 'HTTP/1.1', 'HTTP/1.1', 'HTTP/1.0', 'HTTP/2', 'http/1.1', 'ICE/1.0', ''];
const STATUSES = [
  '200',
  '200',
  '200',
  '404',
  '204',
  '304',
  '101',
  '100',
  '103',
  '199',
  '99',
  '099',
  '000',
  '999',
  '1000',
  '-1',
];
const REASONS = ['OK', '', 'Ü', 'a\x01b', 'a\0b', 'x'.repeat(20_000), 'a\tb', '\x7f'];
const NAMES = [
  ...[
    'X-Own',
    'Content-Type',
    'Link',
    'Location',
    'Date',
    'Set-Cookie',
    'Connection',
    'Upgrade',
    'Trailer',
    'TE',
    'Via',
  ],
  ...[
    'Strict-Transport-Security',
    'X-Trace-Id',
    'Content-Security-Policy',
    'Keep-Alive',
    'WWW-Authenticate',
    'Content-Encoding',
  ],
  ...[
    'Transfer-Encoding',
    'Content-Length',
    'X Y',
    '',
    ' X',
    'X\x01',
    '__proto__',
    'constructor',
    'X-Accel-Redirect',
    'Expect',
  ],
];
const VALUES = [
  ...[
    '1',
    '',
    'iam_token=forged',
    '=iam_token=forged',
    '__Host-iam_token=forged; Secure',
    'a=1',
    'close',
    'keep-alive',
    'upgrade',
  ],
  ...[
    'Upgrade, X-Own',
    'Content-Length',
    'own',
    'websocket',
    'h2c',
    'chunked',
    'gzip',
    'chunked, identity',
    '5',
    '-1',
    '0x10',
    '1e9',
  ],
  ...[
    '99999999999999999999',
    'a\x01b',
    'a\0b',
    'a\r\n b',
    'a\rb',
    'a\nX-Forged: 1',
    'Ü',
    '\xff',
    'not a link',
    '</a>; rel=x, <',
    'NTLM',
  ],
  ...['x'.repeat(5000), 'X-Sum', 'trailers', ' padded ', ','],
];
const CHUNK_SIZES = [
  '0',
  '-1',
  '0x5',
  'ffffffffffffffff',
  '7fffffff',
  '5;ext="a\r\nb"',
  `5;${'e'.repeat(3000)}`,
  ' 5',
  '5 ',
  'g',
  '',
];

/** Header names that a strict reader accepts. Only answers that must be refused use the others. */
const SOUND_NAMES = NAMES.filter(
  name => /^[\w-]+$/.test(name) && !/^(transfer|content)-(encoding|length)$/i.test(name),
);
const SOUND_VALUES = VALUES.filter(value => /^[ -~]*$/.test(value) && value.length < 100);

/** Returns a random answer of a hostile server. */
export function hostileAnswer(random: Random, mark: string): HostileAnswer {
  let text = '';
  for (let left = random.chance(0.2) ? random.below(random.chance(0.2) ? 30 : 4) : 0; left > 0; left -= 1)
    text += interim(random);
  text += answer(random, mark);
  if (random.chance(0.1)) text += answer(random, mark);
  let bytes: Buffer = Buffer.from(text, 'latin1');
  if (random.chance(0.2)) bytes = damaged(random, bytes);
  return {
    parts: pieces(random, bytes),
    end: random.chance(0.03) ? 'stay' : random.pick(['end', 'end', 'end', 'reset']),
  };
}

function interim(random: Random): string {
  return `HTTP/1.1 ${random.pick(['100', '100', '102', '102', '103', '103', '103', '199', '199', random.chance(0.2) ? '101' : '102'])} x\r\n${headers(random, 2, random.chance(0.9))}\r\n`;
}

function answer(random: Random, mark: string): string {
  const isSound = random.chance(0.5);
  const switching = 'HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: own';
  const line = isSound
    ? random.pick(['HTTP/1.1 200 OK', 'HTTP/1.0 200 OK', 'HTTP/1.1 404 No', switching])
    : `${random.pick(VERSIONS)} ${random.pick(STATUSES)} ${random.pick(REASONS)}`;
  const body = mark.repeat(random.below(random.chance(0.05) ? 10_000 : 20));
  return `${line}\r\n${headers(random, random.chance(0.02) ? 1000 : 4, isSound)}${framed(random, body, isSound)}`;
}

function headers(random: Random, most: number, isSound: boolean): string {
  const [names, values] = isSound ? [SOUND_NAMES, SOUND_VALUES] : [NAMES, VALUES];
  let text = '';
  for (let left = random.below(most + 1); left > 0; left -= 1)
    text += `${random.pick(names)}: ${random.pick(values)}\r\n`;
  return text;
}

/** Returns the rest of the head and the body. */
function framed(random: Random, body: string, isSound: boolean): string {
  const length = isSound ? body.length : Math.max(0, body.length + random.below(9) - 4);
  switch (random.below(5)) {
    case 0:
      return `\r\n${body}`;
    case 1:
    case 2:
      return `Content-Length: ${length}\r\n\r\n${body}`;
    case 3:
      return `Transfer-Encoding: chunked\r\n\r\n${chunks(random, body, isSound)}`;
    default:
      return isSound
        ? `Content-Length: ${length}\r\n\r\n${body}`
        : `Content-Length: ${length}\r\nTransfer-Encoding: chunked\r\n\r\n${chunks(random, body, false)}`;
  }
}

function chunks(random: Random, body: string, isSound: boolean): string {
  let text = '';
  for (let rest = body; rest !== ''; ) {
    const size = 1 + random.below(rest.length);
    const shown = isSound || random.chance(0.9) ? size.toString(16) : random.pick(CHUNK_SIZES);
    text += `${shown}\r\n${rest.slice(0, size)}\r\n`;
    rest = rest.slice(size);
  }
  return `${text}0\r\n${random.chance(0.3) ? headers(random, 3, isSound) : ''}\r\n`;
}

function damaged(random: Random, bytes: Buffer): Buffer {
  const at = random.below(bytes.length + 1);
  switch (random.below(3)) {
    case 0:
      return bytes.subarray(0, at);
    case 1:
      return Buffer.concat([bytes.subarray(0, at), random.bytes(1 + random.below(8)), bytes.subarray(at)]);
    default:
      return Buffer.concat([bytes.subarray(0, at), bytes.subarray(random.below(at + 1))]);
  }
}

function pieces(random: Random, bytes: Buffer): Buffer[] {
  const parts: Buffer[] = [];
  let from = 0;
  for (let left = random.below(4); left > 0; left -= 1) {
    const to = from + random.below(bytes.length - from + 1);
    parts.push(bytes.subarray(from, to));
    from = to;
  }
  return [...parts, bytes.subarray(from)];
}
