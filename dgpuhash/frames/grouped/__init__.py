"""Groups that stand: states of aggregates that rows are added to and taken off again."""
