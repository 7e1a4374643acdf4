import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { promisify } from 'node:util';
import { isLoopback } from '../../config/contradictions.ts';
import { usageError } from '../shared/exit.ts';

const OF_NODE = /\.(?:js|mjs|cjs|ts|mts|cts)$/;

/** Chooses a runtime from the files beside the code. Falls back to the Python of this machine. */
export async function runtimeOf(code: string | undefined, handler: string | undefined, service: URL): Promise<string> {
  const names = code === undefined ? [] : namesIn(code);
  const module = handler?.split('.')[0] ?? '';
  const ofModule = names.filter(name => module !== '' && name.replace(/\.[a-z]+$/, '') === module);
  if (ofModule.some(name => name.endsWith('.py'))) return await localPython(service);
  const isNode = ofModule.some(name => OF_NODE.test(name));
  if (isNode || (names.includes('package.json') && !names.some(name => name.endsWith('.py'))))
    return localNode(service);
  if (names.includes('bootstrap')) return 'http';
  return await localPython(service);
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch {
    // The command that reads the directory reports the problem.
    return [];
  }
}

/** Returns the Node version of this command. The guess only makes sense for a service on this machine. */
function localNode({ hostname }: URL): string {
  const runtime = `nodejs${process.versions.node.split('.')[0]}`;
  if (isLoopback(hostname)) return runtime;
  throw usageError(`The code is JavaScript: say which Node it needs, for example --runtime ${runtime}.`);
}

/** Longer than the start of Python on a busy machine. */
const PYTHON_TIMEOUT_MS = 30_000;

/**
 * Returns the Python version of this machine as a runtime. The guess only makes sense for a service on this
 * machine.
 */
export async function localPython({ hostname }: URL): Promise<string> {
  const isHere = ['127.0.0.1', 'localhost', '[::1]'].includes(hostname);
  if (isHere) {
    const print = 'import sys; print("%d.%d" % sys.version_info[:2])';
    const asked = await promisify(execFile)('python3', ['-c', print], { timeout: PYTHON_TIMEOUT_MS }).catch(() => null);
    const found = asked?.stdout.trim() ?? '';
    if (/^3\.\d+$/.test(found)) return `python${found}`;
  }
  throw usageError(
    `${isHere ? 'This machine has no python3' : 'The service runs on another machine'}, so the runtime cannot be chosen. Name it: --runtime python3.11, nodejs22, go, java17, …`,
  );
}
