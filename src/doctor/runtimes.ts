import { DRIVER_NAMES, runsImages } from '../core/sandbox-types.ts';
import type { Finding } from './checks.ts';

/** Facts about the machine that determine the findings. */
export interface RuntimeFacts {
  /** Returns the Java of a version, or the sentence why there is none. */
  readonly jdk: (version: string) => { readonly java: string } | string;
  /** Jar of the Java runtime, or the sentence how to make it. */
  readonly jar: { readonly jar: string } | string;
  /** Returns the Node.js of a major version, or why there is none. */
  readonly node: (version: string) => { readonly path: string } | { readonly problem: string };
  /** Layers of isolation of the process sandbox; null if it does not work. */
  readonly isolation: readonly string[] | null;
  /** Working values of `sandbox_type` that run images. */
  readonly ofImages: readonly string[];
}

const JAVA_VERSIONS = ['8', '11', '17', '21'];
const NODE_VERSIONS = ['20', '22', '24'];

/**
 * Returns findings about the runtime values besides Python for the process sandbox, or for docker where only
 * docker runs them. All of them are optional.
 */
export function runtimeFindings(facts: RuntimeFacts): readonly Finding[] {
  return [programs(facts), java(facts), nodejs(facts), http(facts), customImage(facts)];
}

function programs({ isolation }: RuntimeFacts): Finding {
  const name = 'go, posix-custom-runtime';
  if (isolation === null) return noSandbox(name);
  return { name, status: 'ok', text: 'programs that speak the runtime protocol', notes: [] };
}

function java({ jdk, jar, isolation }: RuntimeFacts): Finding {
  if (isolation === null) return noSandbox('java');
  const looked = JAVA_VERSIONS.map(version => [`java${version}`, jdk(version)] as const);
  const here = looked.filter(([, found]) => typeof found !== 'string').map(([name]) => name);
  const missing = looked.flatMap(([name, found]) => (typeof found === 'string' ? [`${name}: ${found}.`] : []));
  const notes = typeof jar === 'string' ? [`${jar}.`, ...missing] : missing;
  const works = typeof jar !== 'string' && here.length > 0;
  return {
    name: 'java',
    status: works ? 'ok' : 'warn',
    text: works ? here.join(', ') : 'not available',
    // If one Java is installed, the missing versions are not reported.
    notes: works ? [] : notes,
  };
}

function nodejs({ node, isolation }: RuntimeFacts): Finding {
  if (isolation === null) return noSandbox('nodejs');
  const looked = NODE_VERSIONS.map(version => [`nodejs${version}`, node(version)] as const);
  const here = looked.filter(([, found]) => !('problem' in found)).map(([name]) => name);
  const missing = looked.flatMap(([name, found]) => ('problem' in found ? [`${name}: ${found.problem}.`] : []));
  const works = here.length > 0;
  return {
    name: 'nodejs',
    status: works ? 'ok' : 'warn',
    text: works ? here.join(', ') : 'not available',
    notes: works ? [] : missing,
  };
}

function http({ isolation }: RuntimeFacts): Finding {
  if (isolation === null) return noSandbox('http');
  if (isolation.includes('net')) {
    return { name: 'http', status: 'ok', text: 'servers on port 8000 of a network of their own', notes: [] };
  }
  const note = 'Each server needs a network of its own, and this machine does not allow network namespaces.';
  return { name: 'http', status: 'warn', text: 'not available', notes: [note] };
}

function customImage({ ofImages }: RuntimeFacts): Finding {
  const name = 'custom image';
  if (ofImages.length > 0) {
    return {
      name,
      status: 'ok',
      text: `the command of an image, with sandbox_type ${ofImages.join(' or ')}`,
      notes: [],
    };
  }
  const those = DRIVER_NAMES.filter(runsImages).join(' or ');
  const note = `Only the ${those} sandbox runs the command of an image, and it does not work here.`;
  return { name, status: 'warn', text: 'not available', notes: [note] };
}

function noSandbox(name: string): Finding {
  return { name, status: 'warn', text: 'not available', notes: ['The process sandbox does not work here.'] };
}

/** Programs that install the dependencies of code. */
export interface InstallerFacts {
  /** Versions of Python that cannot make a virtual environment with pip. */
  readonly pythonsWithoutVenv: readonly string[];
  /** True if uv is installed, which needs no venv. */
  readonly hasUv: boolean;
  readonly hasNpm: boolean;
}

export function installersFinding({ pythonsWithoutVenv, hasUv, hasNpm }: InstallerFacts): Finding {
  const notes: string[] = [];
  if (!hasUv && pythonsWithoutVenv.length > 0) {
    const versions = pythonsWithoutVenv.join(', ');
    notes.push(
      `Python ${versions} has no venv with pip, so that no requirements.txt can be installed: apt install python3-venv, or install uv.`,
    );
  }
  if (!hasNpm) notes.push('npm was not found, so that no package.json can be installed: apt install npm.');
  const found = [...(hasUv ? ['uv'] : pythonsWithoutVenv.length > 0 ? [] : ['pip']), ...(hasNpm ? ['npm'] : [])];
  const text = found.length === 0 ? 'cannot be installed' : `installed with ${found.join(' and ')}`;
  return { name: 'dependencies', status: notes.length === 0 ? 'ok' : 'warn', text, notes };
}
