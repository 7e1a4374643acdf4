/** The single record of `installation`, written by the migration that made the table. */
export interface InstallationTable {
  singleton: number;
  id: string;
}
