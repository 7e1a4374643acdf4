import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const TIMEOUT_MS = 5000;
const PYTHON = 'import ast, sys; ast.parse(open(sys.argv[1], "rb").read(), sys.argv[1])';

/**
 * Returns why `file` does not parse, in one line, or null. Uses this machine's python3 and Node. Returns null
 * for other kinds of files, and for Python when python3 is missing.
 */
export async function parseFault(file: string): Promise<string | null> {
  const command = file.endsWith('.py')
    ? (['python3', ['-c', PYTHON, file]] as const)
    : /\.[cm]?js$/.test(file)
      ? ([process.execPath, ['--check', file]] as const)
      : null;
  if (command === null) return null;
  try {
    await promisify(execFile)(command[0], command[1], { timeout: TIMEOUT_MS });
    return null;
  } catch (error) {
    const lines = String((error as { stderr?: unknown }).stderr ?? '').split('\n');
    return lines.findLast(line => /^(?:Syntax|Indentation|Tab)Error: /.test(line)) ?? null;
  }
}
