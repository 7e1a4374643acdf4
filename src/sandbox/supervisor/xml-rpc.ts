/** A value of the XML-RPC part that supervisord uses: texts, numbers, booleans, lists and structs. */
export type XmlRpcValue =
  | string
  | number
  | boolean
  | null
  | readonly XmlRpcValue[]
  | { readonly [name: string]: XmlRpcValue };

/** An error that supervisord answers instead of a value. */
export class XmlRpcFault extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** Maximum nesting, deeper than any answer of supervisord. */
const MOST_LEVELS = 32;

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };
const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

export function encodeCall(method: string, params: readonly XmlRpcValue[]): string {
  const list = params.map(param => `<param>${encodeValue(param)}</param>`).join('');
  return `<?xml version="1.0"?><methodCall><methodName>${escapeText(method)}</methodName><params>${list}</params></methodCall>`;
}

/**
 * Returns the value of an answer. Throws an `XmlRpcFault` for a fault.
 * For any other text throws an `Error` that names the expected form.
 */
export function decodeAnswer(text: string): XmlRpcValue {
  const reader = new Reader(text);
  reader.open('methodResponse');
  if (reader.isAt('fault')) {
    reader.open('fault');
    throw toFault(reader.value(0));
  }
  reader.open('params');
  reader.open('param');
  return reader.value(0);
}

/** Converts a fault struct in the result list of `system.multicall`; null for any other value. */
export function faultIn(value: XmlRpcValue | undefined): XmlRpcFault | null {
  const isStruct = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isStruct && 'faultCode' in value ? toFault(value) : null;
}

function toFault(value: XmlRpcValue): XmlRpcFault {
  const { faultCode, faultString } = value as { readonly [name: string]: XmlRpcValue };
  return new XmlRpcFault(Number(faultCode), String(faultString));
}

function encodeValue(value: XmlRpcValue): string {
  return `<value>${encodeInside(value)}</value>`;
}

function encodeInside(value: XmlRpcValue): string {
  if (value === null) return '<nil/>';
  if (typeof value === 'string') return `<string>${escapeText(value)}</string>`;
  if (typeof value === 'boolean') return `<boolean>${value ? 1 : 0}</boolean>`;
  if (typeof value === 'number') return Number.isInteger(value) ? `<int>${value}</int>` : `<double>${value}</double>`;
  if (Array.isArray(value)) return `<array><data>${value.map(encodeValue).join('')}</data></array>`;
  const members = Object.entries(value).map(
    ([name, member]) => `<member><name>${escapeText(name)}</name>${encodeValue(member)}</member>`,
  );
  return `<struct>${members.join('')}</struct>`;
}

function escapeText(text: string): string {
  return text.replace(/[&<>]/g, sign => ESCAPES[sign] as string);
}

function unescapeText(text: string): string {
  return text.replace(/&(?:#x([0-9a-fA-F]+)|#(\d+)|(\w+));/g, (whole, hex, decimal, name) => {
    if (name !== undefined) return ENTITIES[name] ?? whole;
    const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
    return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}

/**
 * Reads tags and text in order. Attributes, comments and processing instructions occur at the beginning only.
 */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
    const prolog = /^\s*(?:<\?[^>]*\?>\s*)?/.exec(text);
    this.#at = prolog?.[0].length ?? 0;
  }

  isAt(name: string): boolean {
    this.#skipBlanks();
    return this.#text.startsWith(`<${name}>`, this.#at);
  }

  open(name: string): void {
    this.#expectTag(`<${name}>`);
  }

  close(name: string): void {
    this.#expectTag(`</${name}>`);
  }

  value(level: number): XmlRpcValue {
    if (level > MOST_LEVELS) throw new Error(`an answer of more than ${MOST_LEVELS} levels`);
    this.#skipBlanks();
    if (this.#skip('<value/>')) return '';
    // Blanks count here: a text may have no type.
    if (!this.#skip('<value>')) throw this.#unexpected('<value>');
    const kind = /^\s*<(\w+)(\/?)>/.exec(this.#text.slice(this.#at, this.#at + 64));
    if (kind === null) {
      const text = this.#textUntil('</value>');
      this.close('value');
      return text;
    }
    this.#at += kind[0].length;
    const name = kind[1] as string;
    const value = kind[2] === '/' ? emptyOf(name) : this.#inside(name, level);
    if (kind[2] !== '/') this.close(name);
    this.close('value');
    return value;
  }

  #inside(kind: string, level: number): XmlRpcValue {
    switch (kind) {
      case 'array':
        return this.#list(level);
      case 'struct':
        return this.#struct(level);
      case 'boolean':
        return this.#textUntil('</boolean>').trim() === '1';
      case 'int':
      case 'i4':
      case 'i8':
      case 'double':
        return Number(this.#textUntil(`</${kind}>`));
      default:
        return this.#textUntil(`</${kind}>`);
    }
  }

  #list(level: number): XmlRpcValue[] {
    const values: XmlRpcValue[] = [];
    this.#skipBlanks();
    if (this.#skip('<data/>')) return values;
    this.open('data');
    while (this.isAt('value') || this.#isAtEmptyValue()) values.push(this.value(level + 1));
    this.close('data');
    return values;
  }

  #struct(level: number): Record<string, XmlRpcValue> {
    const members: [string, XmlRpcValue][] = [];
    while (this.isAt('member')) {
      this.open('member');
      this.open('name');
      const name = this.#textUntil('</name>');
      this.close('name');
      members.push([name, this.value(level + 1)]);
      this.close('member');
    }
    return Object.fromEntries(members);
  }

  #isAtEmptyValue(): boolean {
    return this.#text.startsWith('<value/>', this.#at);
  }

  #textUntil(end: string): string {
    const to = this.#text.indexOf(end, this.#at);
    if (to < 0) throw this.#unexpected(end);
    const text = this.#text.slice(this.#at, to);
    this.#at = to;
    return unescapeText(text);
  }

  #expectTag(tag: string): void {
    this.#skipBlanks();
    if (!this.#skip(tag)) throw this.#unexpected(tag);
  }

  #skip(tag: string): boolean {
    if (!this.#text.startsWith(tag, this.#at)) return false;
    this.#at += tag.length;
    return true;
  }

  #skipBlanks(): void {
    while (/\s/.test(this.#text.charAt(this.#at))) this.#at += 1;
  }

  #unexpected(tag: string): Error {
    const found = JSON.stringify(this.#text.slice(this.#at, this.#at + 40));
    return new Error(`no XML-RPC answer: expected ${tag} at character ${this.#at}, found ${found}`);
  }
}

function emptyOf(kind: string): XmlRpcValue {
  if (kind === 'array') return [];
  if (kind === 'struct') return {};
  return kind === 'nil' ? null : '';
}
