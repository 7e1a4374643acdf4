import { MARK, OTHER_TERMINAL, type Transcript } from './transcript.ts';

/** Size of the terminal, since programs wrap and shorten their output to it. */
const COLUMNS = 120;
const ROWS = 40;
const READY_S = 120;

export interface Outcome {
  /** Output that the step must print; `…` matches anything. */
  readonly expected?: string | null;
  /** True if the step must fail; default false. */
  readonly fails?: boolean;
}

/** A step of a walk: a typed line or another event. */
export type Step =
  | ({ readonly kind: 'typed'; readonly line: string } & Outcome)
  /** Runs in the other terminal; the walk waits for a line there that matches `until`. */
  | { readonly kind: 'other'; readonly line: string; readonly until: string }
  /** Presses Ctrl-C in the other terminal and waits for the end of its command. */
  | { readonly kind: 'interrupt' }
  /** Runs a script that checks or cleans the results of the walk and is not shown. */
  | { readonly kind: 'unseen'; readonly script: string };

export const typed = (line: string, outcome: Outcome = {}): Step => ({ kind: 'typed', line, ...outcome });
export const other = (line: string, until = '^ready'): Step => ({ kind: 'other', line, until });
export const interrupt: Step = { kind: 'interrupt' };
export const unseen = (script: string): Step => ({ kind: 'unseen', script });

/**
 * Returns the bash script of a walk, which uses its own terminal and a second one. The script continues after
 * a failing command, like a person, and writes the marks of `Transcript`.
 */
export function walkScript(steps: readonly Step[]): string {
  return [PRELUDE, ...steps.map(toBash), ''].join('\n');
}

/** Returns the command that runs a bash file on a terminal, regardless of its own output. */
export function onTerminal(file: string): string {
  return `script --quiet --return --flush --command 'bash ${file}' /dev/null </dev/null`;
}

const PRELUDE = `
shopt -s expand_aliases
# The other terminal may have ended before its Ctrl-C.
trap : PIPE
stty cols ${COLUMNS} rows ${ROWS}
other_dir=$(mktemp -d)
typed() { printf '\\n${MARK}@%s\\n' "$1"; }
ended() { printf '\\n${MARK}=%s\\n' "$1"; }
begin_other() {
  mkfifo "$other_dir/keys" 2>/dev/null
  : >"$other_dir/seen"
  script --quiet --return --flush --command "stty cols ${COLUMNS} rows ${ROWS}; $1" /dev/null <"$other_dir/keys" \\
    | tee "$other_dir/seen" | sed --unbuffered 's/^/${OTHER_TERMINAL}/' & other=$!
  exec 9>"$other_dir/keys"
  for (( tries = 0; tries < ${READY_S} * 10; tries++ )); do
    grep -q "$2" "$other_dir/seen" && return
    kill -0 $other 2>/dev/null || return
    sleep 0.1
  done
}
interrupt_other() { printf '\\003' >&9; exec 9>&-; wait $other; }
`;

function toBash(step: Step): string {
  switch (step.kind) {
    case 'typed':
      return `typed ${quote(step.line)}\neval ${quote(step.line)}\nended $?`;
    case 'other':
      return `typed ${quote(`${step.line}     # in another terminal`)}\nbegin_other ${quote(step.line)} ${quote(step.until)}\nended 0`;
    case 'interrupt':
      return `typed '^C     # in the other terminal'\ninterrupt_other\nended 0`;
    case 'unseen':
      return step.script;
  }
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Returns a sentence for each step with an unexpected result. */
export function faultsOf(steps: readonly Step[], { typed: done }: Transcript): readonly string[] {
  const expected = steps.filter(step => step.kind !== 'unseen');
  return expected.flatMap((step, index) => {
    const { command, code, lines } = done[index] ?? { command: '', code: null, lines: [] };
    const line = step.kind === 'interrupt' ? '^C' : step.line;
    if (code === null) return [`"${line}" did not end`];
    if (step.kind !== 'typed') return [];
    if ((code === 0) === (step.fails === true)) return [`"${command}" ended with ${code}`];
    if (step.expected && !matches(lines.join('\n'), step.expected)) return [`"${command}" printed no ${step.expected}`];
    return [];
  });
}

/**
 * Compares without white space, since JSON on a terminal has lines and spaces that the page does not show.
 */
function matches(printed: string, text: string): boolean {
  const pattern = text.replaceAll(/\s/g, '').split('…');
  const escaped = pattern.map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(escaped.join('.*')).test(printed.replaceAll(/\s/g, ''));
}
