import { useState } from 'preact/hooks';
import { call, may } from '../api.ts';
import { Action, brief, counted, Input, Json, moment, Note, Panel, Table, Value } from '../parts.tsx';
import { type Change, changesBetween, rollbackTo } from '../version-changes.ts';
import type { FunctionVersion } from './functions.tsx';

export const LATEST = '$latest';
/** Settings that a confirmation names; the comparison shows all. */
const MAX_NAMED = 5;

interface VersionListProps {
  readonly fn: FunctionVersion;
  readonly versions: readonly FunctionVersion[];
  readonly reload: () => void;
}

/** Versions of a function: publish, compare, roll back and delete. */
export function VersionList({ fn, versions, reload }: VersionListProps) {
  const latest = versions.find(each => each.versionNumber === LATEST);
  const canChange = may('write') && latest !== undefined;
  return (
    <>
      <Table
        label="Versions"
        rows={versions}
        keyOf={each => each.functionVersionUrn}
        empty="The function has no version."
        columns={[
          { title: 'Version', cell: each => each.versionNumber },
          { title: 'Revision', cell: each => each.revisionId, isMono: true, isWide: true },
          { title: 'Description', cell: each => brief(each.versionDesc || each.description) },
          {
            title: 'Changed',
            cell: each => moment(each.Published || each.updateTime || each.createTime),
            isNumber: true,
            isWide: true,
          },
          ...(canChange
            ? [
                {
                  title: '',
                  cell: (each: FunctionVersion) => <VersionActions version={each} latest={latest} reload={reload} />,
                },
              ]
            : []),
        ]}
      />
      {canChange ? <Publish latest={latest} reload={reload} /> : null}
      {versions.length < 2 ? null : <Comparison versions={versions} />}
      <Panel title="Record">
        <Json value={fn} label="Record" />
      </Panel>
    </>
  );
}

interface VersionActionsProps {
  readonly version: FunctionVersion;
  readonly latest: FunctionVersion;
  readonly reload: () => void;
}

function VersionActions({ version, latest, reload }: VersionActionsProps) {
  const { name, versionNumber } = version;
  if (versionNumber === LATEST) return null;
  const changes = changesBetween(latest, version);
  return (
    <div class="actions" key={versionNumber}>
      {changes.length === 0 ? (
        <span class="count">as {LATEST}</span>
      ) : (
        <Action
          text="Roll back"
          sure={questionOf(version, changes)}
          work={async () => {
            await call('updateFunction', {
              params: { name },
              body: { revisionId: latest.revisionId, ...rollbackTo(version, latest) },
            });
            reload();
          }}
        />
      )}
      <Action
        text="Delete"
        sure={`Delete the version ${versionNumber}? Its running calls end; then its instances end.`}
        isDangerous
        work={async () => {
          await call('deleteFunction', { params: { name }, query: { versionNumber } });
          reload();
        }}
      />
    </div>
  );
}

function questionOf({ versionNumber, s3CodePath }: FunctionVersion, changes: readonly Change[]): string {
  const names = changes.slice(0, MAX_NAMED).map(({ name }) => name);
  const others = changes.length > names.length ? ` and ${counted(changes.length - names.length, 'other')}` : '';
  const hasLostToken = s3CodePath !== null && changes.some(({ name }) => name.startsWith('s3CodePath'));
  return [
    `Roll ${LATEST} back to ${versionNumber}?`,
    `${LATEST} gets a new revision with the settings and the code of ${versionNumber}.`,
    `This changes ${names.join(', ')}${others}.`,
    ...(hasLostToken ? ['No record has the token of S3: set it again afterwards.'] : []),
  ].join(' ');
}

function Publish({ latest, reload }: Omit<VersionActionsProps, 'version'>) {
  const [version, setVersion] = useState('');
  const [text, setText] = useState('');
  return (
    <Panel title="Publish">
      <div class="filters">
        <Input label="New version" value={version} onInput={setVersion} />
        <Input label="Description" value={text} onInput={setText} />
        <Action
          text="Publish"
          isMain
          sure={`Publish revision ${latest.revisionId} of ${latest.name}${version === '' ? '' : ` as ${version}`}?`}
          work={async () => {
            await call('publishFunction', {
              params: { name: latest.name },
              body: {
                revisionId: latest.revisionId,
                ...(version === '' ? {} : { versionNumber: version }),
                ...(text === '' ? {} : { versionDesc: text }),
              },
            });
            setVersion('');
            setText('');
            reload();
          }}
        />
      </div>
      <Note>
        Publishing freezes {LATEST} as it is now, revision {latest.revisionId}. Without a name, the time names the
        version.
      </Note>
    </Panel>
  );
}

/** Shows the settings that differ between two versions. */
function Comparison({ versions }: { readonly versions: readonly FunctionVersion[] }) {
  const numbers = versions.map(({ versionNumber }) => versionNumber);
  const [from, setFrom] = useState('');
  const [to, setTo] = useState(LATEST);
  // A chosen version may have been deleted.
  const first = numbers.includes(from) ? from : numbers.find(number => number !== LATEST);
  const others = numbers.filter(number => number !== first);
  const second = others.includes(to) ? to : others[0];
  const before = versions.find(({ versionNumber }) => versionNumber === first);
  const after = versions.find(({ versionNumber }) => versionNumber === second);
  if (before === undefined || after === undefined) return null;
  const shown = ({ name }: Change, text: string) => (text === '' ? '–' : <Value text={text} label={name} isMono />);
  return (
    <Panel title="Compare">
      <div class="filters">
        <Input label="From" value={before.versionNumber} onInput={setFrom} options={numbers} />
        <Input label="To" value={after.versionNumber} onInput={setTo} options={others} />
      </div>
      <Table
        label="Differences"
        rows={changesBetween(before, after)}
        keyOf={change => change.name}
        empty="Both versions have the same settings and the same code."
        columns={[
          { title: 'Setting', cell: change => change.name },
          { title: before.versionNumber, cell: change => shown(change, change.before) },
          { title: after.versionNumber, cell: change => shown(change, change.after) },
        ]}
      />
      <Note>
        The path of an uploaded package has the hash of its code. A directory of the host has no versions: a roll back
        restores its path, and not its files. Secrets appear by their names.
      </Note>
    </Panel>
  );
}
