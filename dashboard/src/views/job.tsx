import { JOB_RULES } from '../../../src/explain/job.ts';
import { call, may, pathOf, socketUrl } from '../api.ts';
import { Explained } from '../explained.tsx';
import { useLoaded } from '../live.ts';
import { LogFollower } from '../log.tsx';
import { Action, ago, Failure, Fields, Json, Missing, moment, Panel, Status, Title, Value } from '../parts.tsx';
import { OwnEvents } from './events.tsx';

export function JobView({ id }: { readonly id: string }) {
  const { value, error } = useLoaded(
    `job ${id}`,
    signal => call('getJob', { params: { id }, signal }),
    event => event.job === id && event.status !== 'DELETED',
  );
  if (value === undefined) return <Missing title={id} error={error} />;
  const isOver = value.end_time !== null;
  return (
    <>
      <Title text={id}>
        <Status text={value.status} />
        {may('write') && !isOver ? (
          <Action
            text="Stop"
            work={async () => {
              await call('stopJob', { params: { id } });
            }}
          />
        ) : null}
        {may('write') && isOver ? (
          <Action
            text="Run again"
            work={async () => {
              const { submission_id } = await call('rerunJob', { params: { id } });
              location.hash = `#/jobs/${encodeURIComponent(submission_id)}`;
            }}
          />
        ) : null}
        {may('write') && isOver ? (
          <Action
            text="Delete"
            isDangerous
            sure={`Delete the job ${id} and its log?`}
            work={async () => {
              await call('deleteJob', { params: { id } });
              location.hash = '#/jobs';
            }}
          />
        ) : null}
      </Title>
      {value.status === 'FAILED' ? <Failure text={value.message ?? ''} /> : null}
      <Explained rules={JOB_RULES} facts={value} />
      <Panel title="Record">
        <Fields
          rows={[
            ['Command', <Value key="command" text={value.entrypoint} label="Command" isMono />],
            ['Message', value.status === 'FAILED' ? '' : value.message],
            ['Attempt', `${value.attempt} of at most ${value.max_attempts}`],
            ['Submitted', `${moment(Number(value.start_time))} (${ago(Number(value.start_time))} ago)`],
            [
              'Ended',
              value.end_time === null ? '' : `${moment(Number(value.end_time))} (${ago(Number(value.end_time))} ago)`,
            ],
            ['Exit code', value.driver_exit_code],
            ['Node', value.driver_node_id],
          ]}
        />
      </Panel>
      <Panel title="Log">
        {/* Each attempt has its own log. */}
        <LogFollower
          key={value.attempt}
          socket={socketUrl(`${pathOf('getJobLogs', { params: { id } })}/tail`)}
          label="Log"
        />
      </Panel>
      <OwnEvents of={{ job: id }} />
      <details class="panel">
        <summary>Record as JSON</summary>
        <Json value={value} label="Record as JSON" />
      </details>
    </>
  );
}
