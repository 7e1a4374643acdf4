import { useMemo, useState } from 'preact/hooks';
import { type AnswerOf, ask, call, may, pathOf } from '../api.ts';
import { elementsOf } from '../json-stream.ts';
import { type ListSource, searchText, useList } from '../list.ts';
import { useLoaded } from '../live.ts';
import { Action, ago, brief, Failure, Input, Loading, moment, Panel, Shown, Status, Table, Title } from '../parts.tsx';

type Job = AnswerOf<'getJob'>;

export const JOBS: ListSource<Job> = {
  async *all(signal) {
    const { body } = await ask(pathOf('listJobs'), { signal });
    if (body !== null) yield* elementsOf<Job>(body);
  },
  one: async (id, signal) => await call('getJob', { params: { id }, signal }),
  idOf: job => job.submission_id,
  about: event => event.job,
};

export function JobsView() {
  const [text, setText] = useState('');
  const [status, setStatus] = useState('');
  const { value, error } = useList(JOBS);
  const wanted = text.toLowerCase();
  const rows = useMemo(
    () =>
      (value ?? []).filter(
        job =>
          (status === '' || job.status === status) &&
          (wanted === '' ||
            searchText(job, ({ submission_id: id, entrypoint }) => `${id} ${entrypoint}`).includes(wanted)),
      ),
    [value, status, wanted],
  );
  return (
    <>
      <Title text="Jobs" />
      {may('write') ? <Submit /> : null}
      <div class="filters">
        <Input label="Search" value={text} onInput={setText} type="search" />
        <Input
          label="Status"
          value={status}
          onInput={setStatus}
          options={['', 'PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'STOPPED']}
        />
        <Shown rows={rows} of={value} />
      </div>
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <Table
          label="Jobs"
          rows={rows}
          keyOf={job => job.submission_id}
          empty={
            value.length === 0 ? 'There is no job yet. Run “rookery job submit” to submit one.' : 'No matching jobs.'
          }
          columns={[
            {
              title: 'Job ID',
              cell: job => <a href={`#/jobs/${encodeURIComponent(job.submission_id)}`}>{job.submission_id}</a>,
            },
            { title: 'Status', cell: job => <Status text={job.status} /> },
            { title: 'Command', cell: job => brief(job.entrypoint), isMono: true },
            { title: 'Attempt', cell: job => job.attempt, isNumber: true, isWide: true },
            { title: 'Submitted', cell: job => `${ago(Number(job.start_time))} ago`, isNumber: true },
            { title: 'Reason', cell: job => (hasReason(job) ? brief(job.message ?? '') : ''), isWide: true },
          ]}
        />
      )}
      <Schedules />
    </>
  );
}

/** The message of another status only repeats the status. */
function hasReason({ status }: Job): boolean {
  return status === 'FAILED' || status === 'STOPPED';
}

function Submit() {
  const [command, setCommand] = useState('');
  return (
    <Panel title="Submit">
      <div class="filters">
        <Input label="Command" value={command} onInput={setCommand} />
        <Action
          text="Submit"
          isMain
          work={async () => {
            const answer = (await call('submitJob', { body: { entrypoint: command } })) as { submission_id: string };
            location.hash = `#/jobs/${encodeURIComponent(answer.submission_id)}`;
          }}
        />
      </div>
    </Panel>
  );
}

function Schedules() {
  const { value, error, reload } = useLoaded(
    'schedules',
    signal => call('listJobSchedules', { signal }),
    event => event.type === 'job',
  );
  return (
    <Panel title="Schedules">
      <Failure text={error} />
      <Table
        label="Schedules"
        rows={value ?? []}
        keyOf={schedule => schedule.schedule_id}
        empty="There is no schedule. “rookery job schedule create” makes one."
        columns={[
          { title: 'ID', cell: schedule => schedule.schedule_id },
          { title: 'When', cell: schedule => `${schedule.cron} ${schedule.timezone}`, isMono: true },
          {
            title: 'Next run',
            cell: schedule =>
              schedule.next_run_time === null
                ? 'never'
                : moment(Number(schedule.next_run_time) || schedule.next_run_time),
          },
          {
            title: 'Command',
            cell: schedule => brief(String((schedule.job as { entrypoint?: unknown }).entrypoint ?? '')),
            isMono: true,
            isWide: true,
          },
          {
            title: '',
            cell: schedule =>
              may('write') ? (
                <Action
                  key={schedule.schedule_id}
                  text="Remove"
                  sure={`Remove the schedule ${schedule.schedule_id}? The jobs that it has submitted remain.`}
                  work={async () => {
                    await call('deleteJobSchedule', { params: { id: schedule.schedule_id } });
                    reload();
                  }}
                />
              ) : null,
          },
        ]}
      />
    </Panel>
  );
}
