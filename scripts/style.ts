/** The rules for words that a program can check: comments, titles of tests, log messages. */
import { parseSync } from 'oxc-parser';

export interface Finding {
  readonly rule: Rule;
  readonly file: string;
  readonly line: number;
  /** The words that break the rule. */
  readonly text: string;
}

export type Rule = 'banned word' | 'long comment line' | 'opener' | 'long first sentence' | 'title' | 'log message';

/** Words that hide the actor of a sentence, and private words with a usual one. */
const BANNED =
  /\b(nobody|somebody|whoever|anybody|everybody|of one(?= (?:of|that|which|who)\b)|the same of|is told|hears? of|lets? go|looks? at everything|ways in)\b/i;
const MOST_CHARS = 110;
const MOST_WORDS = 20;
/** Words with which a doc comment may not begin: its subject would stand elsewhere. */
const OPENERS =
  /^(of|what|who|whom|whose|as|it|its|they|their|that|those|these|this|one|ones|the same of|how|whether)\b/i;
const TITLE_OPENERS =
  /^(it|its|they|their|that|those|these|this|one|ones|what|who|whoever|whose|of|as|nobody|everybody)\b/i;
const TESTS = new Set(['test', 'it', 'describe', 'describeWith', 'testWith']);
const LEVELS = new Set(['debug', 'info', 'warn', 'error']);

interface SyntaxNode {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly value?: unknown;
  readonly name?: string;
  readonly callee?: SyntaxNode;
  readonly object?: SyntaxNode;
  readonly property?: SyntaxNode;
  readonly tag?: SyntaxNode;
  readonly arguments?: readonly SyntaxNode[];
}

/** Returns the violations of the rules in a file of TypeScript or JavaScript. */
export function findingsOfScript(file: string, text: string): readonly Finding[] {
  const found: Finding[] = [];
  const starts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
  const lineAt = (offset: number) => starts.findLastIndex(start => start <= offset) + 1;
  const { comments, program } = parseSync(file, text);
  for (const { type, value, start, end } of comments) {
    const add = (rule: Rule, words: string) => found.push({ rule, file, line: lineAt(start), text: words });
    const words = value
      .replaceAll(/^\s*\*? ?/gm, ' ')
      .replaceAll(/`[^`]*`/g, '``')
      .replaceAll(/\s+/g, ' ')
      .trim();
    const banned = BANNED.exec(words);
    if (banned) add('banned word', banned[0]);
    for (let line = lineAt(start); line <= lineAt(end); line++) {
      const whole = text.slice(starts[line - 1], (starts[line] ?? text.length + 1) - 1);
      const isOnlyComment = /^\s*(\/\/|\/?\*)/.test(whole);
      if (isOnlyComment && whole.length > MOST_CHARS && !/https?:\/\//.test(whole))
        add('long comment line', whole.trim());
    }
    if (type !== 'Block' || !value.startsWith('*') || words.startsWith('@')) continue;
    if (OPENERS.test(words)) add('opener', words.slice(0, 60));
    const sentence = words.split(/(?<=[.:;])\s/, 1)[0] ?? '';
    if (sentence.split(' ').length > MOST_WORDS + 2) add('long first sentence', sentence);
  }
  walk(program as unknown as SyntaxNode, node => {
    if (node.type !== 'CallExpression') return;
    const texts = (node.arguments ?? []).filter(({ type, value }) => type === 'Literal' && typeof value === 'string');
    const isTest = TESTS.has(rootOf(node.callee) ?? '');
    const isLog = node.callee?.type === 'MemberExpression' && isLogCall(node.callee);
    for (const { value, start } of texts) {
      const words = String(value);
      const add = (rule: Rule) => found.push({ rule, file, line: lineAt(start), text: words.slice(0, 100) });
      if (isTest && (TITLE_OPENERS.test(words) || BANNED.test(words))) add('title');
      if (isLog && (/^(an?|the)\b/i.test(words) || /^[A-Z][a-z]/.test(words) || BANNED.test(words))) add('log message');
    }
  });
  return found;
}

/** Returns the banned words and long lines in comments of Python and of languages with comments as in C. */
export function findingsOfOther(file: string, text: string): readonly Finding[] {
  const found: Finding[] = [];
  const isComment = file.endsWith('.py') ? /^\s*#/ : /^\s*(\/\/|\/?\*)/;
  for (const [index, line] of text.split('\n').entries()) {
    if (!isComment.test(line)) continue;
    const banned = BANNED.exec(line);
    if (banned) found.push({ rule: 'banned word', file, line: index + 1, text: banned[0] });
    if (line.length > MOST_CHARS && !/https?:\/\//.test(line)) {
      found.push({ rule: 'long comment line', file, line: index + 1, text: line.trim() });
    }
  }
  return found;
}

function isLogCall({ object, property }: SyntaxNode): boolean {
  if (!LEVELS.has(property?.name ?? '')) return false;
  const name = object?.property?.name ?? object?.name ?? '';
  return /^(log|logger)$/.test(name);
}

/** Returns the name at the beginning of a chain such as `test.each(rows)`. */
function rootOf(node: SyntaxNode | undefined): string | undefined {
  if (node === undefined) return undefined;
  if (node.type === 'Identifier') return node.name;
  return rootOf(node.object ?? node.callee ?? node.tag);
}

function walk(node: SyntaxNode, visit: (node: SyntaxNode) => void): void {
  visit(node);
  for (const child of Object.values(node)) {
    for (const each of Array.isArray(child) ? child : [child]) {
      if (typeof each?.type === 'string') walk(each as SyntaxNode, visit);
    }
  }
}
