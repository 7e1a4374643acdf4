/**
 * Decides which paths an ignore file excludes, byte for byte as git does. ignore-corpus.json is compared with
 * git.
 */
export class IgnoreRules {
  readonly #rules: readonly Rule[];

  constructor(content: Buffer) {
    this.#rules = parse(content).reverse();
  }

  /**
   * Returns true if the last matching line excludes `path`, and null without a matching line. The caller
   * checks the parents.
   */
  isExcluded(path: string, isDirectory: boolean): boolean | null {
    const bytes = latin1(path);
    const name = bytes.slice(bytes.lastIndexOf('/') + 1);
    for (const { pattern, isNegative, isForDirectories, isForNames } of this.#rules) {
      if (isForDirectories && !isDirectory) continue;
      if (pattern.test(isForNames ? name : bytes)) return !isNegative;
    }
    return null;
  }
}

interface Rule {
  readonly pattern: RegExp;
  readonly isNegative: boolean;
  readonly isForDirectories: boolean;
  /** True if the line has no slash, so that it is compared with the last name of a path. */
  readonly isForNames: boolean;
}

const BYTE_ORDER_MARK = '\xef\xbb\xbf';
const NEVER = '(?!)';
const CLASSES: Readonly<Record<string, string>> = {
  alnum: '0-9A-Za-z',
  alpha: 'A-Za-z',
  blank: ' \\t',
  cntrl: '\\x00-\\x1f\\x7f',
  digit: '0-9',
  graph: '!-~',
  lower: 'a-z',
  print: ' -~',
  punct: '!-\\/:-@\\[-`{-~',
  space: '\\t-\\r ',
  upper: 'A-Z',
  xdigit: '0-9A-Fa-f',
};

/** Converts each byte into one character, because git compares bytes. */
function latin1(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}

function parse(content: Buffer): Rule[] {
  const text = content.toString('latin1');
  const lines = (text.startsWith(BYTE_ORDER_MARK) ? text.slice(BYTE_ORDER_MARK.length) : text).split('\n');
  return lines
    .filter(line => line !== '' && !line.startsWith('#'))
    .map(line => ruleOf(withoutTrailingSpaces(line.replace(/\r$/, ''))));
}

/** Removes trailing spaces. A space after a backslash stays, and so does a tab. */
function withoutTrailingSpaces(line: string): string {
  return /^((?:\\.|[^\\])*?) *$/s.exec(line)?.[1] ?? line;
}

function ruleOf(line: string): Rule {
  const isNegative = line.startsWith('!');
  const body = isNegative ? line.slice(1) : line;
  const isForDirectories = body.endsWith('/');
  const path = isForDirectories ? body.slice(0, -1) : body;
  const pattern = new RegExp(`^${expressionOf(path.replace(/^\//, ''))}$`, 's');
  return { pattern, isNegative, isForDirectories, isForNames: !path.includes('/') };
}

/** Translates a pattern of git. A malformed one matches nothing. */
function expressionOf(glob: string): string {
  const start = /^[^*?[\\]*/.exec(glob)?.[0].length ?? 0;
  let expression = escaped(glob.slice(0, start));
  let at = start;
  while (at < glob.length) {
    const character = glob.charAt(at);
    if (character === '*') {
      const stars = /^\*+/.exec(glob.slice(at))?.[0].length ?? 0;
      const next = at + stars;
      const isWhole = (at === start || glob[at - 1] === '/') && /^(?:\\?\/|$)/.test(glob.slice(next));
      if (stars === 1 || !isWhole) expression += '[^/]*';
      else if (glob[next] === '/') expression += '(?:.*/)?';
      else expression += '.*';
      at = stars > 1 && isWhole && glob[next] === '/' ? next + 1 : next;
    } else if (character === '[') {
      const set = setOf(glob, at + 1);
      if (set === null) return NEVER;
      expression += set.expression;
      at = set.end;
    } else if (character === '\\') {
      if (at + 1 === glob.length) return NEVER;
      expression += escaped(glob.charAt(at + 1));
      at += 2;
    } else {
      expression += character === '?' ? '[^/]' : escaped(character);
      at += 1;
    }
  }
  return expression;
}

/**
 * Reads the set whose content begins at `from`. Returns null when the set has no end or names no class of
 * characters.
 */
function setOf(glob: string, from: number): { readonly expression: string; readonly end: number } | null {
  const isNegated = /[!^]/.test(glob.charAt(from));
  const first = isNegated ? from + 1 : from;
  let content = '';
  let previous: string | null = null;
  let at = first;
  while (at === first || glob[at] !== ']') {
    const named = /^\[:([^\]]*):\]/.exec(glob.slice(at));
    const range = /^-(?:\\(.)|([^\]\\]))/s.exec(glob.slice(at));
    if (named !== null) {
      const members = CLASSES[named[1] ?? ''];
      if (members === undefined) return null;
      content += members;
      previous = null;
      at += named[0].length;
    } else if (range !== null && previous !== null) {
      const last = range[1] ?? range[2] ?? '';
      if (previous <= last) content += `${escaped(previous)}-${escaped(last)}`;
      previous = null;
      at += range[0].length;
    } else {
      if (glob[at] === '\\') at += 1;
      previous = glob[at] ?? null;
      if (previous === null) return null;
      content += escaped(previous);
      at += 1;
    }
  }
  const members = isNegated ? `[^/${content}]` : `(?!/)[${content}]`;
  return { expression: members, end: at + 1 };
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}
