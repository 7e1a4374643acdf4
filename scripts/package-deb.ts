/**
 * `npm run package:deb [-- DIRECTORY] [--node FILE]`: the package for Debian 12 and what comes of it; the last line is its path. It brings the Node that
 * runs it (`--node`: another one), for this machine's architecture.
 */
import {
  chmodSync,
  copyFileSync,
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
import { ARGUMENTS, ROOT, run } from './command.ts';
import { megabytes, sizeOf, stagePackage } from './staged-package.ts';

const SOURCE = join(ROOT, 'deploy/debian');
const LIBRARY = 'usr/lib/rookery';
const DOCUMENTS = 'usr/share/doc/rookery';
const MAINTAINER_SCRIPTS = ['postinst', 'prerm', 'postrm'];
const DEPENDS = ['libc6 (>= 2.28)', 'libstdc++6 (>= 9)', 'libgcc-s1', 'python3 (>= 3.6)', 'systemd (>= 250)'];
/** Without these there are no networks of their own, and no packages from indexes of TLS. */
const RECOMMENDS = ['passt | slirp4netns', 'nftables | iptables', 'iproute2', 'ca-certificates', 'python3-pip'];
/** The Debian names of architectures that there are parts for, and those of Node. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };

const { values, positionals } = parseArgs({
  args: [...ARGUMENTS],
  allowPositionals: true,
  options: { node: { type: 'string', default: process.execPath } },
});
const out = resolve(positionals[0] ?? 'packages');
const architecture = ARCHITECTURES[process.arch];
if (architecture === undefined) throw new Error(`there is no package for ${process.arch}`);

const staged = mkdtempSync(join(tmpdir(), 'rookery-package-'));
try {
  const library = join(staged, LIBRARY);
  const { name, version, description } = await stagePackage(library);
  for (const file of ['README.md', 'CHANGELOG.md', 'LICENSE', 'examples', 'rookery.sample.yaml']) {
    mkdirSync(join(staged, DOCUMENTS), { recursive: true });
    renameSync(join(library, file), join(staged, DOCUMENTS, file));
  }
  stageDocuments(join(staged, DOCUMENTS));
  stagePrograms(library, values.node);
  copy('rookery.service', 'usr/lib/systemd/system/rookery.service');
  copy('sysusers.conf', 'usr/lib/sysusers.d/rookery.conf');
  copy('rookery.yaml', 'etc/rookery/rookery.yaml');
  copy('root.conf', `${DOCUMENTS}/root.conf`);
  const bytes = sizeOf(staged);
  stageControl({ name, version, description: String(description), bytes });
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

/** As Debian has them: compressed, and licenses in `copyright`. */
function stageDocuments(directory: string): void {
  for (const [name, target] of [
    ['README.md', 'README.md.gz'],
    ['CHANGELOG.md', 'changelog.gz'],
  ] as const) {
    writeFileSync(join(directory, target), gzipSync(readFileSync(join(directory, name)), { level: 9 }));
    rmSync(join(directory, name));
  }
  const license = readFileSync(join(directory, 'LICENSE'), 'utf8').includes('Apache License') ? 'Apache-2.0' : 'other';
  rmSync(join(directory, 'LICENSE'));
  writeFileSync(
    join(directory, 'copyright'),
    [
      'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/',
      'Upstream-Name: rookery',
      '',
      'Files: *',
      'Copyright: the authors of Rookery',
      `License: ${license}`,
      ' On Debian systems the text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.',
      '',
      `Files: ${LIBRARY}/node_modules/*`,
      'Copyright: their authors',
      'License: as-they-say',
      ' Each package has its license beside it.',
      '',
      `Files: ${LIBRARY}/bin/node`,
      'Copyright: Node.js contributors',
      'License: MIT',
      ' https://github.com/nodejs/node/blob/main/LICENSE',
      '',
    ].join('\n'),
  );
}

function stagePrograms(library: string, node: string): void {
  mkdirSync(join(library, 'bin'));
  copyFileSync(node, join(library, 'bin/node'));
  mkdirSync(join(staged, 'usr/bin'));
  const program = join(staged, 'usr/bin/rookery');
  writeFileSync(program, `#!/bin/sh\nexec /${LIBRARY}/bin/node /${LIBRARY}/dist/main.js "$@"\n`);
  chmodSync(program, 0o755);
  // Where the examples of the documents are looked for.
  symlinkSync('../../share/doc/rookery/examples', join(library, 'examples'));
}

function stageControl(of: { name: string; version: string; description: string; bytes: number }): void {
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
      'Section: net',
      'Priority: optional',
      'Description: serverless cluster that you run yourself',
      ` ${of.description}`,
      '',
    ].join('\n'),
  );
}

/** What a package has is everybody's to read and its owner's to write, whatever the mask and the modes here. */
function closeModes(directory: string): void {
  chmodSync(directory, 0o755);
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) closeModes(path);
    else if (entry.isFile()) chmodSync(path, (statSync(path).mode & 0o111) === 0 ? 0o644 : 0o755);
  }
}
