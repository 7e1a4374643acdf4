/** A kind of sandbox without code. */
export interface Template {
  readonly name: string;
  /** Programs of the platform in every sandbox of the template, hidden from the list of its processes. */
  readonly programs: readonly TemplateProgram[];
}

/** A program that the service starts after each start of a sandbox, through `startProcess` with `hidden`. */
export interface TemplateProgram {
  /** Tag of the process; unique in the template. */
  readonly tag: string;
  /** Account of the sandbox that runs the program. */
  readonly user: 'root' | 'user';
  /**
   * Returns the command line inside the sandbox. A name without a slash is searched on the sandbox's PATH.
   * `programsDir` is the directory of the platform's Python packages, as the sandbox sees it.
   */
  readonly argv: (programsDir: string) => readonly string[];
  /** Variables in addition to those of the sandbox. */
  readonly env: Readonly<Record<string, string>>;
  /** TCP port on which the program listens when it is ready. Absent: it has none. */
  readonly port?: number;
}

/** Template of a sandbox for which none was named. */
export const DEFAULT_TEMPLATE = 'base';

/** Runs the interpreter without packages of the sandbox; its kernels, which run user code, have them. */
const RUN_INTERPRETER =
  'import sys; sys.path[0] = sys.argv.pop(1); from rookery_interpreter import server; server.main()';

/** Returns the arguments of Python that run the interpreter of the packages in `programsDir`. */
export function interpreterArguments(programsDir: string): readonly string[] {
  return ['-S', '-s', '-B', '-c', RUN_INTERPRETER, programsDir];
}

/** The template with a code interpreter, and the port on which it listens. */
export const INTERPRETER = { template: 'code-interpreter-v1', port: 49_999 } as const;

const INTERPRETER_PROGRAM: TemplateProgram = {
  tag: 'code-interpreter',
  user: 'user',
  argv: programsDir => ['python3', ...interpreterArguments(programsDir)],
  env: {},
  port: INTERPRETER.port,
};

const TEMPLATES: readonly Template[] = [
  { name: DEFAULT_TEMPLATE, programs: [] },
  { name: INTERPRETER.template, programs: [INTERPRETER_PROGRAM] },
];

/** Returns the template with this name, or undefined. */
export function findTemplate(name: string): Template | undefined {
  return TEMPLATES.find(template => template.name === name);
}

/** Returns the names of all templates. */
export function templateNames(): readonly string[] {
  return TEMPLATES.map(({ name }) => name);
}

/** Delays for about 8 s, in which a program listens on its port after the start of a sandbox. */
const DIAL_DELAYS_MS: readonly number[] = Array<number>(140).fill(50);

/**
 * Returns the delays before further attempts to reach a port of a sandbox, in milliseconds. Only ports of the
 * template's programs have some: such a program starts with the sandbox and may not listen yet.
 */
export function dialDelaysOf(template: string | undefined, port: number): readonly number[] {
  const programs = template === undefined ? [] : (findTemplate(template)?.programs ?? []);
  return programs.some(program => program.port === port) ? DIAL_DELAYS_MS : [];
}
