import { execFile } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const PACKAGE = resolve(import.meta.dirname, '../../runtimes/java');
const JAR = join(PACKAGE, 'target', 'rookery-runtime.jar');

/**
 * Returns the jar of the Java runtime where services of this clone look for it. Builds it if a source is
 * newer, and replaces it in one step, because other tests may use it at the same time.
 */
export async function runtimeJar(): Promise<string> {
  if (existsSync(JAR) && statSync(JAR).mtimeMs > newestSourceMs()) return JAR;
  const directory = mkdtempSync(join(tmpdir(), 'rookery-jar-'));
  try {
    await run('mvn', ['-q', '-B', `-DbuildDirectory=${directory}`, '-DskipTests', 'package'], { cwd: PACKAGE });
    mkdirSync(join(PACKAGE, 'target'), { recursive: true });
    const libraries = join(PACKAGE, 'target', 'lib');
    if (!existsSync(libraries) && existsSync(join(directory, 'lib')))
      cpSync(join(directory, 'lib'), libraries, { recursive: true });
    const copy = `${JAR}.${process.pid}`;
    copyFileSync(join(directory, 'rookery-runtime.jar'), copy);
    renameSync(copy, JAR);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  return JAR;
}

function newestSourceMs(): number {
  const sources = readdirSync(join(PACKAGE, 'src'), { recursive: true, withFileTypes: true });
  const files = [join(PACKAGE, 'pom.xml'), ...sources.map(({ parentPath, name }) => join(parentPath, name))];
  return Math.max(...files.map(file => statSync(file).mtimeMs));
}
