/**
 * Makes the package for Debian 12 and its derivatives: `npm run package:deb [-- DIRECTORY] [--node FILE]`.
 * The last line of the output is the path of the package. It contains the Node.js of deploy/node.json for
 * this machine's architecture, or the program of `--node`.
 */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { fetchNode } from './bundled-node.ts';
import { ARGUMENTS, ROOT, run } from './command.ts';
import { manPage } from './man-page.ts';
import { megabytes, sizeOf, stagePackage } from './staged-package.ts';

const SOURCE = join(ROOT, 'deploy/debian');
const LIBRARY = 'usr/lib/rookery';
const DOCUMENTS = 'usr/share/doc/rookery';
/** Files that the package has below /usr/share/doc instead of in the library. */
const MOVED = [
  'README.md',
  'deploy',
  'CHANGELOG.md',
  'LICENSE',
  'THIRD-PARTY-NOTICES',
  'docs',
  'examples',
  'rookery.sample.yaml',
];
const NODE_LICENCE = 'LICENSE.node';
const COMPLETIONS = [
  ['bash', 'usr/share/bash-completion/completions/rookery'],
  ['zsh', 'usr/share/zsh/vendor-completions/_rookery'],
  ['fish', 'usr/share/fish/vendor_completions.d/rookery.fish'],
] as const;
const MAINTAINER_SCRIPTS = ['postinst', 'prerm', 'postrm'];
const DEPENDS = ['libc6 (>= 2.28)', 'libstdc++6 (>= 9)', 'libgcc-s1', 'python3 (>= 3.6)', 'systemd (>= 250)'];
/** Packages for sandbox networks, package indexes over TLS, and virtual environments of Python code. */
const RECOMMENDS = ['passt | slirp4netns', 'nftables | iptables', 'iproute2', 'ca-certificates', 'python3-venv'];
/**
 * Packages for dependencies of Node.js code, and for shell completion.
 * python3-pip is not recommended, because it recommends a C++ compiler. python3-venv has another pip. The
 * system's pip is needed only for an index that its configuration names.
 */
const SUGGESTS = ['npm', 'python3-pip', 'bash-completion', 'docker.io'];
/** Architectures with native parts: the names of Node.js and of Debian. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };

const { values, positionals } = parseArgs({
  args: [...ARGUMENTS],
  allowPositionals: true,
  options: { node: { type: 'string' } },
});
const out = resolve(positionals[0] ?? 'packages');
const architecture = ARCHITECTURES[process.arch];
if (architecture === undefined) throw new Error(`there is no package for ${process.arch}`);

const staged = mkdtempSync(join(tmpdir(), 'rookery-package-'));
try {
  const library = join(staged, LIBRARY);
  const { name, version, description, homepage } = await stagePackage(library);
  mkdirSync(join(staged, DOCUMENTS), { recursive: true });
  for (const file of MOVED) renameSync(join(library, file), join(staged, DOCUMENTS, file));
  // Programs and messages find documents and examples at the same paths as in the other packages.
  for (const name of ['docs', 'examples']) symlinkSync(`../../share/doc/rookery/${name}`, join(library, name));
  await stagePrograms(library);
  stageDocuments(join(staged, DOCUMENTS), library);
  await stageShell(version);
  copy('rookery.service', 'usr/lib/systemd/system/rookery.service');
  copy('sysusers.conf', 'usr/lib/sysusers.d/rookery.conf');
  copy('rookery.yaml', 'etc/rookery/rookery.yaml');
  copy('root.conf', `${DOCUMENTS}/root.conf`);
  const bytes = sizeOf(staged);
  stageControl({ name, version, description: String(description), homepage, bytes });
  closeModes(staged);
  mkdirSync(out, { recursive: true });
  const file = join(out, `${name}_${version}_${architecture}.deb`);
  const { code, output } = await run('dpkg-deb', ['--root-owner-group', '-Zzstd', '-z9', '--build', staged, file], {
    capture: true,
  });
  if (code !== 0) throw new Error(output);
  console.log(`${megabytes(statSync(file).size)} packed, ${megabytes(bytes)} installed`);
  console.log(file);
} finally {
  rmSync(staged, { recursive: true, force: true });
}

function copy(source: string, target: string): void {
  mkdirSync(join(staged, target, '..'), { recursive: true });
  copyFileSync(join(SOURCE, source), join(staged, target));
}

/** Stores documents in Debian's form: README and change log compressed, licences in `copyright`. */
function stageDocuments(directory: string, library: string): void {
  for (const [name, target] of [
    ['README.md', 'README.md.gz'],
    ['CHANGELOG.md', 'changelog.gz'],
  ] as const) {
    writeFileSync(join(directory, target), gzipSync(readFileSync(join(directory, name)), { level: 9 }));
    rmSync(join(directory, name));
  }
  rmSync(join(directory, 'LICENSE'));
  writeFileSync(join(directory, 'copyright'), copyright(library));
}

function copyright(library: string): string {
  const node = existsSync(join(library, NODE_LICENCE)) ? readFileSync(join(library, NODE_LICENCE), 'utf8') : null;
  const notices = readFileSync(join(staged, DOCUMENTS, 'THIRD-PARTY-NOTICES'), 'utf8');
  return [
    'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/',
    'Upstream-Name: rookery',
    '',
    'Files: *',
    'Copyright: the authors of Rookery',
    'License: Apache-2.0',
    ' On Debian systems the text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.',
    '',
    `Files: ${LIBRARY}/node_modules/* ${LIBRARY}/dist/* ${LIBRARY}/runtimes/python/rookery_zygote/bin/init-*`,
    'Copyright: the authors of each package',
    'License: third-party-notices',
    ...indented(notices),
    '',
    `Files: ${LIBRARY}/bin/node`,
    'Copyright: Node.js contributors, and the authors of its parts',
    'License: node',
    ...indented(
      node ?? 'The program was given with --node when the package was built; its terms are those of its origin.',
    ),
    '',
  ].join('\n');
}

/** Returns the lines of a long text in the form of a control file. */
function indented(text: string): readonly string[] {
  return text
    .trimEnd()
    .split('\n')
    .map(line => (line.trim() === '' ? ' .' : ` ${line}`));
}

async function stagePrograms(library: string): Promise<void> {
  const directory = join(library, 'bin');
  mkdirSync(directory);
  if (values.node === undefined) {
    const { licence } = await fetchNode(directory);
    renameSync(licence, join(library, NODE_LICENCE));
  } else {
    copyFileSync(values.node, join(directory, 'node'));
  }
  mkdirSync(join(staged, 'usr/bin'));
  const program = join(staged, 'usr/bin/rookery');
  writeFileSync(program, `#!/bin/sh\nexec /${LIBRARY}/bin/node /${LIBRARY}/dist/main.js "$@"\n`);
  chmodSync(program, 0o755);
}

/** Stages the manual page and the completion scripts. */
async function stageShell(version: string): Promise<void> {
  const manual = join(staged, 'usr/share/man/man1');
  mkdirSync(manual, { recursive: true });
  writeFileSync(join(manual, 'rookery.1.gz'), gzipSync(await manPage(version), { level: 9 }));
  for (const [shell, file] of COMPLETIONS) {
    const { code, output } = await run(process.execPath, [join(ROOT, 'dist/main.js'), 'completion', shell], {
      capture: true,
    });
    if (code !== 0) throw new Error(`rookery completion ${shell} failed:\n${output}`);
    mkdirSync(join(staged, file, '..'), { recursive: true });
    writeFileSync(join(staged, file), output);
  }
}

interface ControlFields {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  /** Value of package.json. Undefined as long as the project has no web address. */
  readonly homepage: string | undefined;
  readonly bytes: number;
}

function stageControl(of: ControlFields): void {
  const control = join(staged, 'DEBIAN');
  mkdirSync(control);
  for (const script of MAINTAINER_SCRIPTS) {
    copyFileSync(join(SOURCE, script), join(control, script));
    chmodSync(join(control, script), 0o755);
  }
  writeFileSync(join(control, 'conffiles'), '/etc/rookery/rookery.yaml\n');
  writeFileSync(
    join(control, 'control'),
    [
      `Package: ${of.name}`,
      `Version: ${of.version}`,
      `Architecture: ${architecture}`,
      'Maintainer: the authors of Rookery <rookery@localhost>',
      `Installed-Size: ${Math.ceil(of.bytes / 1024)}`,
      `Depends: ${DEPENDS.join(', ')}`,
      `Recommends: ${RECOMMENDS.join(', ')}`,
      `Suggests: ${SUGGESTS.join(', ')}`,
      ...(of.homepage === undefined ? [] : [`Homepage: ${of.homepage}`]),
      'Section: net',
      'Priority: optional',
      'Description: serverless cluster that you run yourself',
      ` ${of.description}`,
      '',
    ].join('\n'),
  );
}

/**
 * Makes all files readable for every user and writable for the owner, whatever the umask and modes of this
 * machine.
 */
function closeModes(directory: string): void {
  chmodSync(directory, 0o755);
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) closeModes(path);
    else if (entry.isFile()) chmodSync(path, (statSync(path).mode & 0o111) === 0 ? 0o644 : 0o755);
  }
}
